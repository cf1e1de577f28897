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


def test_a_negative_gamma_does_not_take_p_below_what_depth_needs() -> None:
    residual = ResidualConfig(
        preset="measured", H=LevelResidualConfig(gamma=-0.2), L=LevelResidualConfig(gamma=0.2)
    )
    scales = resolve(residual, HRM_ARC)
    assert (scales.H.exponent, scales.L.exponent) == pytest.approx((0.25, 0.3))
    assert (scales.H.alpha, scales.H.beta) == pytest.approx(
        (FOURTH_ROOT_24, INVERSE_FOURTH_ROOT_96), abs=1e-6
    )
    recorded = scales.as_dict()
    assert recorded["H"]["p_asked"] == pytest.approx(0.2)
    assert "p_asked" not in recorded["L"]
    table = format_table(scales, HRM_ARC)
    assert "H: gamma asks for p = 0.2; raised to 0.25" in table
    assert "L: gamma" not in table
    # An exponent that somebody gives is theirs.
    own = ResidualConfig(preset="deeploop", H=LevelResidualConfig(p=0.1))
    assert resolve(own, HRM_ARC).H.exponent == 0.1


def test_two_module_bound() -> None:
    # beta/alpha = 1/(4N); one module of K blocks visited R times has bound 1/(8K).
    scales = resolve(ResidualConfig(preset="deeploop"), ArchConfig(grad_scope="last_cycle"))
    assert scales.bound == pytest.approx((8 * 1 * 1 + 8 * 2 * 2) / 48**2)
    trm = resolve(ResidualConfig(preset="deeploop"), TRM_ARC)
    assert trm.bound == pytest.approx(1 / (8 * 2))


# By hand for K_H = 3, K_L = 2 under last_cycle: N_g = 3 + 2 C_L, alpha = (2 N_g)^p and
# beta = (8 N_g)^(-p); bound (6 + 4 C_L^2) (beta/alpha)^2, summed over levels where they differ.
# C_L: N_g, alpha and beta at p = 1/2, alpha and beta at p = 1/4.
DEEP = {
    1: (5, 3.162278, 0.158114, 1.778279, 0.397635),
    2: (7, 3.741657, 0.133631, 1.934336, 0.365555),
    4: (11, 4.690416, 0.106600, 2.165737, 0.326497),
    8: (19, 6.164414, 0.081111, 2.482824, 0.284800),
    16: (35, 8.366600, 0.059761, 2.892508, 0.244461),
}
BOUNDS = {
    "vanilla": {1: 10, 2: 22, 4: 70, 8: 262, 16: 1030},
    "deeploop": {1: 0.025, 2: 0.0280612, 4: 0.0361570, 8: 0.0453601, 16: 0.0525510},
    "deepnorm": {1: 0.5, 2: 0.7857143, 4: 1.5909091, 8: 3.4473684, 16: 7.3571429},
    "asymmetric": {1: 0.31, 2: 0.2346939, 4: 0.1694215, 8: 0.1232687, 16: 0.0951020},
    "alpha_only": {1: 1, 2: 1.5714286, 4: 3.1818182, 8: 6.8947368, 16: 14.7142857},
    "beta_only": {1: 0.25, 2: 0.3928571, 4: 0.7954545, 8: 1.7236842, 16: 3.6785714},
    # 6 / (4 * 3) + 4 C_L^2 / (4 C_L^2 * 2): at its rule's worst case the loop count cancels.
    "looped_eps": dict.fromkeys(DEEP, 1),
}


@pytest.mark.parametrize("cycles", DEEP)
@pytest.mark.parametrize("preset", BOUNDS)
def test_presets_and_bounds_over_loop_counts(preset: str, cycles: int) -> None:
    arch = ArchConfig(H_layers=3, L_layers=2, L_cycles=cycles, grad_scope="last_cycle")
    residual = ResidualConfig(preset=preset)
    depth, alpha, beta, alpha_quarter, beta_quarter = DEEP[cycles]
    assert unrolled_depth(arch, "paper") == depth
    half, quarter = (alpha, beta), (alpha_quarter, beta_quarter)
    expected = {
        "vanilla": (1, 1, 1, 1),
        "deeploop": half * 2,
        "deepnorm": quarter * 2,
        "asymmetric": quarter + half,
        "alpha_only": (alpha, 1) * 2,
        "beta_only": (1, beta) * 2,
        # R sqrt(K): R = H_cycles = 2 for H, 2 C_L for L
        "looped_eps": (2 * 1.732051, 1, 2 * cycles * 1.414214, 1),
    }
    assert both(residual, arch) == pytest.approx(expected[preset], rel=1e-5)
    assert resolve(residual, arch).bound == pytest.approx(BOUNDS[preset][cycles], rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.31, 0.5, 1.0])
@pytest.mark.parametrize("margin", [-0.05, 0.0, 0.05])
def test_the_exponent_threshold(gamma: float, margin: float) -> None:
    """With kappa = R^gamma and one module, the bound goes as R^(1 + gamma - 4 p)."""
    p = (1 + gamma) / 4 + margin
    rounds = (4, 64)
    bounds = []
    for R in rounds:
        own = LevelResidualConfig(p=p, depth=float(2 * R))  # N = K R, K = 2
        arch = ArchConfig(L_layers=2, L_cycles=R, grad_scope="last_cycle")
        scales = resolve(ResidualConfig(preset="custom", H=own, L=own), arch)
        bounds.append(scales.bound_at(0.0, R**gamma))
    slope = math.log(bounds[1] / bounds[0]) / math.log(rounds[1] / rounds[0])
    assert slope == pytest.approx(-4 * margin, abs=1e-9)


def test_the_bound_at_a_measured_kappa() -> None:
    scales = resolve(ResidualConfig(), ArchConfig(grad_scope="last_cycle", L_cycles=4))
    assert scales.bound_at(0.5, 2.0) == 8 * 1 * 0.5 + 8 * 4 * 2.0
    assert scales.bound_at(1.0, 4.0) == scales.bound


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
