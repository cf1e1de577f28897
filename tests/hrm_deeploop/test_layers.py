"""The post-norm residual step against its expansion, and the dtypes it is taken in."""

import itertools

import pytest
import torch

from hrm_deeploop.layers import at_least_float32, residual_norm


def expansion_miss(alpha: float) -> float:
    """Largest error of RMSNorm(alpha x + z) ~ x + (z - x <x, z> / D) / alpha, x of RMS 1."""
    generator = torch.Generator().manual_seed(0)
    x, z = torch.randn(2, 50, 16, generator=generator, dtype=torch.float64)
    x /= x.square().mean(-1, keepdim=True).sqrt()
    along = (x * z).mean(-1, keepdim=True)
    expansion = x + (z - along * x) / alpha
    actual = residual_norm(x, z, alpha=alpha, eps=1e-17, sum_in_float32=True)
    return (actual - expansion).abs().max().item()


def test_the_residual_step_is_its_expansion_up_to_second_order() -> None:
    """The error falls as 1 / alpha^2: doubling alpha quarters it."""
    misses = [expansion_miss(alpha) for alpha in (64.0, 128.0, 256.0)]
    assert misses[0] < 1e-2
    for larger, smaller in itertools.pairwise(misses):
        assert larger / smaller == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_float64_is_never_narrowed(dtype: torch.dtype, wide: torch.dtype) -> None:
    x = torch.ones(1, 2, 16, dtype=dtype)
    assert at_least_float32(x).dtype == wide
    assert residual_norm(x, x, alpha=1.0, eps=1e-5, sum_in_float32=True).dtype == dtype
