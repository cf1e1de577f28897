"""Every preset's numbers against a table worked out by hand, and what is refused."""

import math

import pytest

from hrm_deeploop.config import ArchConfig, LevelResidualConfig, ResidualConfig
from hrm_deeploop.scaling import format_table, resolve, unrolled_depth

HRM_ARC = ArchConfig()  # K_H = K_L = 4, H_cycles = C_L = 2, last_step
TRM_ARC = ArchConfig(
    share_levels=True,
    H_layers=0,
    L_layers=2,
    H_cycles=3,
    L_cycles=4,
    grad_scope="last_cycle",
    puzzle_emb_len=16,
    q_continue=False,
)

# By hand, published sizes: M_g = 2 (4 + 2 * 4) = 24, N_g = 12.
SQRT_24, INVERSE_SQRT_96 = 4.898979, 0.102062
FOURTH_ROOT_24, INVERSE_FOURTH_ROOT_96 = 2.213364, 0.319472
TABLE = {
    "vanilla": (1, 1, 1, 1),
    "deeploop": (SQRT_24, INVERSE_SQRT_96, SQRT_24, INVERSE_SQRT_96),
    "deepnorm": (FOURTH_ROOT_24, INVERSE_FOURTH_ROOT_96, FOURTH_ROOT_24, INVERSE_FOURTH_ROOT_96),
    "asymmetric": (FOURTH_ROOT_24, INVERSE_FOURTH_ROOT_96, SQRT_24, INVERSE_SQRT_96),
    "alpha_only": (SQRT_24, 1, SQRT_24, 1),
    "beta_only": (1, INVERSE_SQRT_96, 1, INVERSE_SQRT_96),
    "looped_eps": (4, 1, 8, 1),  # R sqrt(K): H 2 * 2, L (2 * 2) * 2
}


def both(residual: ResidualConfig, arch: ArchConfig = HRM_ARC) -> tuple[float, ...]:
    scales = resolve(residual, arch)
    return (scales.H.alpha, scales.H.beta, scales.L.alpha, scales.L.beta)


@pytest.mark.parametrize("preset", TABLE)
def test_presets_at_published_sizes(preset: str) -> None:
    assert both(ResidualConfig(preset=preset)) == pytest.approx(TABLE[preset], abs=1e-6)


def test_vanilla_is_exactly_one() -> None:
    assert both(ResidualConfig()) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("num_blocks", "rounds", "alpha", "beta"),
    [
        (12, 1, 4.899, 0.1021),
        (12, 3, 8.485, 0.0589),
        (12, 5, 10.954, 0.0456),
        (12, 7, 12.961, 0.0386),
        (24, 1, 6.928, 0.0722),
        (24, 3, 12.0, 0.0417),
        (24, 5, 15.492, 0.0323),
        (24, 7, 18.330, 0.0273),
    ],
)
def test_the_papers_table_of_depths(
    num_blocks: int, rounds: int, alpha: float, beta: float
) -> None:
    residual = ResidualConfig(preset="deeploop", depth=float(num_blocks * rounds))
    numbers = both(residual)
    assert numbers[0] == pytest.approx(alpha, abs=5.1e-4)
    assert numbers[1] == pytest.approx(beta, abs=5.1e-5)


def test_depth_of_the_paper_and_of_the_visible_scope() -> None:
    assert unrolled_depth(HRM_ARC, "paper") == 12
    assert unrolled_depth(HRM_ARC, "visible") == 8
    last_cycle = ArchConfig(grad_scope="last_cycle", L_cycles=5, H_layers=3)
    assert unrolled_depth(last_cycle, "paper") == unrolled_depth(last_cycle, "visible") == 23
    visible = ResidualConfig(preset="deeploop", depth="visible")
    assert both(visible) == pytest.approx((4, 0.125, 4, 0.125))


def test_shared_levels_count_their_blocks_for_both() -> None:
    assert unrolled_depth(TRM_ARC, "paper") == 10  # M_g = 2 * 2 * (4 + 1) = 20
    numbers = both(ResidualConfig(preset="deeploop"), TRM_ARC)
    assert numbers == pytest.approx((4.472136, 0.111803, 4.472136, 0.111803), abs=1e-6)


def test_levels_are_independent() -> None:
    residual = ResidualConfig(
        preset="deeploop",
        H=LevelResidualConfig(preset="deepnorm", depth=2.0),
        L=LevelResidualConfig(p=0.75, c=4.0, d=16.0),
    )
    expected = (4**0.25, 16**-0.25, 48**0.75, 192**-0.75)
    assert both(residual) == pytest.approx(expected)
    explicit = ResidualConfig(H=LevelResidualConfig(alpha=3.0), L=LevelResidualConfig(beta=0.5))
    assert both(explicit) == (3.0, 1.0, 1.0, 0.5)


def test_measured_exponent() -> None:
    residual = ResidualConfig(
        preset="measured", H=LevelResidualConfig(gamma=0.0), L=LevelResidualConfig(gamma=1.0)
    )
    assert both(residual) == pytest.approx(both(ResidualConfig(preset="asymmetric")))


def test_two_module_bound() -> None:
    # beta/alpha = 1/(4N); one module of K blocks visited R times has bound 1/(8K).
    scales = resolve(ResidualConfig(preset="deeploop"), ArchConfig(grad_scope="last_cycle"))
    assert scales.bound == pytest.approx((8 * 1 * 1 + 8 * 2 * 2) / 48**2)
    trm = resolve(ResidualConfig(preset="deeploop"), TRM_ARC)
    assert trm.bound == pytest.approx(1 / (8 * 2))


def level(**values: object) -> ResidualConfig:
    preset = values.pop("preset", "custom")
    return ResidualConfig(preset=preset, H=LevelResidualConfig(**values))


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        (level(), "residual=custom needs residual.H.p, or both"),
        (level(preset="measured"), "needs residual.H.gamma"),
        (level(preset="vanilla", p=0.5), r"residual.H.p has no effect with preset vanilla"),
        (level(preset="looped_eps", c=2.0), "residual.H.c has no effect with preset looped_eps"),
        (
            level(alpha=2.0, beta=0.5, p=0.5),
            "residual.H.p has no effect with preset custom and the explicit values",
        ),
        (level(preset="deeploop", alpha=1.0, c=7.0), "residual.H.c has no effect"),
        (level(preset="beta_only", c=5.0), "residual.H.c has no effect with preset beta_only"),
        (level(preset="deeploop", p=300.0), r"residual.H.p must be in \[0, 2\]; got 300"),
        (level(preset="measured", gamma=-2.0), r"\(1 \+ gamma\) / 4 must be in \[0, 2\]"),
        (ResidualConfig(depth="visible"), "residual.depth=visible has no effect"),
        (ResidualConfig(preset="alpha_only", ffn_gain="all"), "ffn_gain=all has no effect"),
        (level(preset="deeploop", gamma=0.1), "gamma is read by preset measured only"),
        (level(preset="deeploop", eps_lambda=2.0), "eps_lambda is read by preset looped_eps only"),
    ],
)
def test_refused(residual: ResidualConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(residual, HRM_ARC)


def test_shared_levels_refuse_two_betas() -> None:
    with pytest.raises(ValueError, match="beta must be one number"):
        resolve(ResidualConfig(preset="asymmetric"), TRM_ARC)
    alphas = ResidualConfig(
        preset="alpha_only", H=LevelResidualConfig(p=0.25), L=LevelResidualConfig(p=0.5)
    )
    assert both(alphas, TRM_ARC)[0::2] == pytest.approx((20**0.25, math.sqrt(20)))


def test_table_names_what_matters() -> None:
    scales = resolve(ResidualConfig(preset="deeploop"), HRM_ARC)
    text = format_table(scales, HRM_ARC)
    for part in ("4.89898", "0.102062", "N_g paper 12, visible 8", "H.value", "L.down"):
        assert part in text
    assert "H.up" not in text
    assert "beta scales: none" in format_table(resolve(ResidualConfig(), HRM_ARC), HRM_ARC)
