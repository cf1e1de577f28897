"""Attention kernels against the definition in float64, and which is chosen where."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hrm_deeploop import attention
from hrm_deeploop.attention import (
    Kernel,
    blocked_attention,
    choose_kernel,
    has_only_avx512_bf16,
    mix,
    plain_attention,
)

CPU = "cpu"


def qkv(num_tokens: int, num_queries: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, num_tokens, 64)
    q, k, v = (torch.randn(shape, generator=generator).to(torch.bfloat16) for _ in range(3))
    return q[:, :, :num_queries], k, v


def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = q.double(), k.double(), v.double()
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@pytest.fixture
def without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "ONLY_AVX512_BF16", True)


@pytest.mark.parametrize("num_tokens", [5, 515, 1030])  # one block of queries, two, three
@pytest.mark.parametrize("num_queries", [1, None])
def test_blocked_is_as_exact_as_plain(num_tokens: int, num_queries: int | None) -> None:
    operands = qkv(num_tokens, num_queries)
    blocked, plain, right = (f(*operands) for f in (blocked_attention, plain_attention, exact))
    assert blocked.shape == operands[0].shape
    assert blocked.dtype == torch.bfloat16

    def error(found: Tensor) -> float:
        return float((found.double() - right).norm() / right.norm())

    assert error(blocked) < 1.1 * error(plain) < 0.01


def test_any_number_of_threads_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = qkv(20)
    found = []
    for threads in (1, 4, 100):  # 6 heads: one at a time, four and two, all
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(blocked_attention(*operands))
    torch.testing.assert_close(found[0], found[1], atol=4e-3, rtol=0)
    torch.testing.assert_close(found[0], found[2], atol=4e-3, rtol=0)


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for only, expected in ((True, Kernel.BLOCKED), (False, Kernel.FUSED)):
        monkeypatch.setattr(attention, "ONLY_AVX512_BF16", only)
        assert choose_kernel(901, torch.bfloat16, CPU) is expected
        assert choose_kernel(901, torch.bfloat16, CPU, is_causal=True) is Kernel.FUSED
        assert choose_kernel(901, torch.float32, CPU) is Kernel.FUSED
        assert choose_kernel(37, torch.bfloat16, CPU) is Kernel.PLAIN
        assert choose_kernel(37, torch.bfloat16, "cuda") is Kernel.FUSED


@pytest.mark.parametrize(
    ("abilities", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": True, "amx_bf16": True}, False),
        ({"avx512_bf16": False, "amx_bf16": False}, False),
        ({}, False),
        (None, False),
    ],
)
def test_processor(
    abilities: dict[str, bool] | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if abilities is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities, raising=False)
    assert has_only_avx512_bf16() is expected


def gradients(of: Callable[[Tensor, Tensor, Tensor], Tensor], *operands: Tensor) -> Tensor:
    """Those of a loss in all operands, one after the other, float64."""
    leaves = [x.clone().requires_grad_() for x in operands]
    weights = torch.linspace(-1, 1, operands[0].numel(), dtype=torch.float64)
    loss = (of(*leaves).double().flatten() * weights).sum()
    return torch.cat([g.double().flatten() for g in torch.autograd.grad(loss, leaves)])


@pytest.mark.usefixtures("without_amx")
def test_gradients_through_whole_products_are_as_exact_as_plain() -> None:
    operands = qkv(300)
    right = gradients(exact, *(x.double() for x in operands))
    found, plain = (gradients(f, *operands) for f in (mix, plain_attention))
    error = float((found - right).norm() / right.norm())
    assert error < 1.1 * float((plain - right).norm() / right.norm()) < 0.01


@pytest.mark.usefixtures("without_amx")
def test_the_fused_kernel_where_much_would_be_kept_and_under_causal_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, k, v = qkv(300)
    fused = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(attention, "MAX_KEPT_BYTES", 2 * 3 * 300 * 300 * 2)
    assert not torch.equal(mix(q, k, v), fused(q, k, v))
    monkeypatch.setattr(attention, "MAX_KEPT_BYTES", 2 * 3 * 300 * 300 * 2 - 1)
    assert torch.equal(mix(q, k, v), fused(q, k, v))
    with torch.no_grad():
        assert torch.equal(mix(q, k, v), blocked_attention(q, k, v))
        assert torch.equal(mix(q, k, v, is_causal=True), fused(q, k, v, is_causal=True))


@pytest.mark.usefixtures("without_amx")
def test_forward_mode_derivatives_without_gradient() -> None:
    q, k, v = qkv(300)
    tangent = torch.ones_like(q)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        _, along = torch.func.jvp(lambda x: mix(x, k, v), (q,), (tangent,))
        _, right = torch.func.jvp(lambda x: exact(x, k, v), (q.double(),), (tangent.double(),))
    assert (along.double() - right).norm() < 0.02 * right.norm()


@pytest.mark.usefixtures("without_amx")
def test_compiled_it_is_one_node() -> None:
    q, k, v = qkv(300)
    torch.library.opcheck(blocked_attention, (q, k, v))
    compiled = torch.compile(mix, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(q, k, v), blocked_attention(q, k, v))
