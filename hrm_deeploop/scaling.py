"""DeepLoop residual scaling: which alpha and beta each level gets, and why.

A residual sublayer computes ``x <- rms_norm(alpha * x + f(x))``: alpha multiplies the skip at run
time, beta multiplies the residual-branch matrices once, at initialisation.  Both follow from the
number N of unrolled blocks that the gradient sees:

    alpha = (c N)^p        beta = (d N)^(-p)        (c, d) = (2, 8)

DeepLoop has p = 1/2, DeepNorm p = 1/4.  The levels H and L are separate modules, so each may have
its own p, constants, N, or alpha and beta themselves.  Pure functions; no torch.

**Source**: DeepLoop, arXiv 2607.13491 v2; DeepNorm, arXiv 2203.00555.  Differs: the two levels
may be scaled independently, which the paper's two-module bound licenses but the paper never ran.
"""

import math
from dataclasses import dataclass
from typing import Literal

from hrm_deeploop.config import ArchConfig, LevelResidualConfig, ResidualConfig

LevelName = Literal["H", "L"]
Depth = str | float

DEEPLOOP_EXPONENT = 1 / 2
DEEPNORM_EXPONENT = 1 / 4
ALPHA_CONSTANT = 2.0  # c
BETA_CONSTANT = 8.0  # d
MAX_EXPONENT = 2.0
MIN_MEASURED_EXPONENT = DEEPNORM_EXPONENT
"""Least p of preset ``measured``: (1 + gamma)/4 bounds p in the number of rounds; in the number of
blocks the bound grows as K^(1 - 4p) whatever gamma is, so it still needs 1/4."""


@dataclass(frozen=True, kw_only=True)
class LevelScale:
    """The residual scaling of one level, resolved to numbers.

    Attributes:
        level: ``"H"`` or ``"L"``.
        preset: The preset the numbers came from.
        num_blocks: K, physical blocks of the level.
        rounds: R_g, how often the gradient sees these blocks in one training step.
        depth: N, the unrolled depth the formula was given; None where no formula was used.
        exponent: p; None where no exponent was used.
        asked_exponent: What a measured gamma asked for, where that is below ``exponent``: p is
            then ``MIN_MEASURED_EXPONENT``; None: p is what was asked for.
        alpha: Skip multiplier at run time, > 0.
        beta: Gain of the branch matrices at initialisation, > 0.
    """

    level: LevelName
    preset: str
    num_blocks: int
    rounds: int
    depth: float | None
    exponent: float | None
    alpha: float
    beta: float
    asked_exponent: float | None = None

    def as_dict(self) -> dict[str, object]:
        """The numbers that a result records."""
        numbers = {"p": self.exponent, "N": self.depth, "alpha": self.alpha, "beta": self.beta}
        asked = {} if self.asked_exponent is None else {"p_asked": self.asked_exponent}
        return {**numbers, **asked}


@dataclass(frozen=True, kw_only=True)
class ResidualScales:
    """Both levels' scaling and the reading of "feed-forward matrices" that beta follows."""

    H: LevelScale
    L: LevelScale
    ffn_gain: str
    share_levels: bool

    @property
    def bound(self) -> float:
        """``bound_at`` the worst case, fully aligned visits: kappa = R_g.

        Shared levels are one set of parameters visited rounds_H + rounds_L times.
        """
        if self.share_levels:
            visits = self.H.rounds + self.L.rounds
            return self.bound_at(visits, visits)
        return self.bound_at(self.H.rounds, self.L.rounds)

    def bound_at(self, kappa_H: float, kappa_L: float) -> float:
        """The two-module stability bound, sum over levels of J R_g kappa (beta/alpha)^2.

        J = 2 K sublayers.

        Args:
            kappa_H: Alignment of H, in [0, R_g]; of the shared blocks with ``share_levels``.
            kappa_L: Alignment of L, likewise.
        """
        return sum(
            2 * s.num_blocks * s.rounds * kappa * (s.beta / s.alpha) ** 2
            for s, kappa in ((self.H, kappa_H), (self.L, kappa_L))
        )

    def as_dict(self) -> dict[str, object]:
        """The numbers that a result records, per level."""
        levels: dict[str, object] = {s.level: s.as_dict() for s in (self.H, self.L)}
        return {**levels, "ffn_gain": self.ffn_gain}


def alpha_for(depth: float, exponent: float, constant: float | None = None) -> float:
    """alpha = (c N)^p, c = 2 unless given."""
    return ((ALPHA_CONSTANT if constant is None else constant) * depth) ** exponent


def beta_for(depth: float, exponent: float, constant: float | None = None) -> float:
    """beta = (d N)^(-p), d = 8 unless given."""
    return ((BETA_CONSTANT if constant is None else constant) * depth) ** -exponent


def inverse_loop_eps(num_blocks: int, rounds: int, strength: float | None) -> float:
    """1/eps with eps = lambda / (R sqrt(K)), lambda = 1 unless given.

    **Source**: arXiv 2606.18524.
    """
    return rounds * math.sqrt(num_blocks) / (1.0 if strength is None else strength)


def visible_rounds(arch: ArchConfig, level: LevelName) -> int:
    """R_g: how often one training step's gradient passes through the level's blocks."""
    if level == "H" or arch.grad_scope == "last_step":
        return 1
    return arch.L_cycles


def unrolled_depth(arch: ArchConfig, depth: Depth) -> float:
    """N, the unrolled depth that alpha and beta are computed from.

    Args:
        arch: The architecture.
        depth: ``"paper"``: N_g = K_H + C_L K_L, every L step of the last outer cycle;
            ``"visible"``: counted from the actual ``grad_scope``; or a number, taken as N.

    Returns:
        N > 0; M_g = 2 N residual sublayer visits.
    """
    if not isinstance(depth, str):
        return float(depth)
    num_L_visits = arch.L_cycles if depth == "paper" else visible_rounds(arch, "L")
    return float(arch.num_H_blocks + num_L_visits * arch.num_L_blocks)


def resolve(residual: ResidualConfig, arch: ArchConfig) -> ResidualScales:
    """Turns the residual configuration into numbers.

    Args:
        residual: Preset, depth, and each level's departures from them.
        arch: Layers, cycles, gradient scope and sharing.

    Returns:
        alpha and beta of both levels.

    Raises:
        ValueError: If a level lacks a value its preset needs, has one the preset does not use, or
            if shared levels would need two betas.

    **Source**: arXiv 2607.13491 v2, M_g = 2 (K_H + C_L K_L).
    """
    scales = ResidualScales(
        H=_resolve_level("H", residual, residual.H, arch),
        L=_resolve_level("L", residual, residual.L, arch),
        ffn_gain=residual.ffn_gain,
        share_levels=arch.share_levels,
    )
    if arch.share_levels and scales.H.beta != scales.L.beta:
        raise ValueError(
            "arch.share_levels=true has one set of weights, so beta must be one number; got "
            f"beta {scales.H.beta:g} for H and {scales.L.beta:g} for L; set residual.H.beta and "
            "residual.L.beta to the same value"
        )
    _refuse_unused_common_settings(residual, scales)
    return scales


# preset -> (exponent of H, exponent of L, alpha is scaled, beta is scaled)
_FAMILY: dict[str, tuple[float | None, float | None, bool, bool]] = {
    "deeploop": (DEEPLOOP_EXPONENT, DEEPLOOP_EXPONENT, True, True),
    "deepnorm": (DEEPNORM_EXPONENT, DEEPNORM_EXPONENT, True, True),
    "asymmetric": (DEEPNORM_EXPONENT, DEEPLOOP_EXPONENT, True, True),
    "alpha_only": (DEEPLOOP_EXPONENT, DEEPLOOP_EXPONENT, True, False),
    "beta_only": (DEEPLOOP_EXPONENT, DEEPLOOP_EXPONENT, False, True),
    "custom": (None, None, True, True),
    "measured": (None, None, True, True),
}


def _resolve_level(
    level: LevelName, residual: ResidualConfig, own: LevelResidualConfig, arch: ArchConfig
) -> LevelScale:
    preset = own.preset or residual.preset
    key = f"residual.{level}"
    if own.gamma is not None and preset != "measured":
        raise ValueError(f"{key}.gamma is read by preset measured only; got preset {preset}")
    if own.eps_lambda is not None and preset != "looped_eps":
        raise ValueError(f"{key}.eps_lambda is read by preset looped_eps only; got {preset}")

    alpha = beta = 1.0
    depth = exponent = asked = None
    alpha_is_scaled, beta_is_scaled = _FAMILY[preset][2:] if preset in _FAMILY else (False, False)
    alpha_is_scaled &= own.alpha is None
    beta_is_scaled &= own.beta is None
    used = {"c"} if alpha_is_scaled else set()
    used |= {"d"} if beta_is_scaled else set()
    used |= {"p", "depth"} if used else set()
    for name in ("p", "c", "d", "depth"):
        if getattr(own, name) is not None and name not in used:
            raise ValueError(
                f"{key}.{name} has no effect with preset {preset} and the explicit values given; "
                "remove it, or use residual=custom"
            )
    if used:
        exponent = p = _exponent(level, preset, own)
        if preset == "measured" and own.p is None and p < MIN_MEASURED_EXPONENT:
            exponent, asked, p = MIN_MEASURED_EXPONENT, p, MIN_MEASURED_EXPONENT
        depth = N = unrolled_depth(arch, own.depth if own.depth is not None else residual.depth)
        if alpha_is_scaled:
            alpha = alpha_for(N, p, own.c)
        if beta_is_scaled:
            beta = beta_for(N, p, own.d)
    elif preset == "looped_eps":
        alpha = _looped_eps_alpha(level, own, arch)
    return LevelScale(
        level=level,
        preset=preset,
        num_blocks=arch.num_H_blocks if level == "H" else arch.num_L_blocks,
        rounds=visible_rounds(arch, level),
        depth=depth,
        exponent=exponent,
        alpha=own.alpha if own.alpha is not None else alpha,
        beta=own.beta if own.beta is not None else beta,
        asked_exponent=asked,
    )


def _exponent(level: LevelName, preset: str, own: LevelResidualConfig) -> float:
    key = f"residual.{level}"
    if preset == "measured" and own.p is None:
        if own.gamma is None:
            raise ValueError(
                f"residual=measured needs {key}.gamma, the alignment exponent measured at "
                "initialisation, or residual.gamma_file, what kappa --init --out wrote; the "
                "exponent is then (1 + gamma) / 4"
            )
        return _checked_exponent((1 + own.gamma) / 4, f"{key}: (1 + gamma) / 4")
    default = _FAMILY[preset][0 if level == "H" else 1]
    exponent = own.p if own.p is not None else default
    if exponent is None:
        raise ValueError(f"residual=custom needs {key}.p, or both {key}.alpha and {key}.beta")
    return _checked_exponent(exponent, f"{key}.p")


def _checked_exponent(exponent: float, key: str) -> float:
    if not 0 <= exponent <= MAX_EXPONENT:
        raise ValueError(f"{key} must be in [0, {MAX_EXPONENT:g}]; got {exponent:g}")
    return exponent


def _refuse_unused_common_settings(residual: ResidualConfig, scales: "ResidualScales") -> None:
    """Settings of both levels that neither reads would only split one arm into two names."""
    levels = (scales.H, scales.L)
    if residual.depth != "paper" and all(s.depth is None for s in levels):
        raise ValueError(f"residual.depth={residual.depth} has no effect: no level uses a depth")
    if residual.ffn_gain != "activated" and all(s.beta == 1 for s in levels):
        raise ValueError(f"residual.ffn_gain={residual.ffn_gain} has no effect: beta is 1")


def _looped_eps_alpha(level: LevelName, own: LevelResidualConfig, arch: ArchConfig) -> float:
    """1/eps with eps = lambda / (R sqrt(K)), R the level's forward calls in one segment.

    rms_norm(x + eps f) = rms_norm(x / eps + f) up to the norm's eps, so this is arXiv
    2606.18524's pre-norm rule carried over to post-norm, not a test of its claim.
    """
    rounds = arch.H_cycles * (1 if level == "H" else arch.L_cycles)
    num_blocks = arch.num_H_blocks if level == "H" else arch.num_L_blocks
    return inverse_loop_eps(num_blocks, rounds, own.eps_lambda)


def format_table(scales: ResidualScales, arch: ArchConfig) -> str:
    """The table printed at the start of a run: what is scaled, by how much, and the bound."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.6g}"

    header = ("level", "preset", "K", "R_g", "N", "p", "alpha", "beta", "beta/alpha")
    rows = [header] + [
        (
            s.level,
            s.preset,
            str(s.num_blocks),
            str(s.rounds),
            number(s.depth),
            number(s.exponent),
            number(s.alpha),
            number(s.beta),
            number(s.beta / s.alpha),
        )
        for s in (scales.H, scales.L)
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    scaled = "none" if scales.H.beta == scales.L.beta == 1 else ", ".join(beta_matrices(scales))
    depths = f"N_g paper {unrolled_depth(arch, 'paper'):g}, visible "
    depths += f"{unrolled_depth(arch, 'visible'):g}"
    if scales.share_levels:
        lines.append(f"one set of blocks for both levels, R_g {scales.H.rounds + scales.L.rounds}")
    lines.append(f"grad_scope {arch.grad_scope}; {depths}; two-module bound {scales.bound:.4g}")
    lines.append(f"beta scales: {scaled}")
    lines += [
        f"{s.level}: gamma asks for p = {number(s.asked_exponent)}; raised to "
        f"{number(s.exponent)}, which depth without loops needs"
        for s in (scales.H, scales.L)
        if s.asked_exponent is not None
    ]
    return "\n".join(lines)


def beta_matrices(scales: ResidualScales) -> list[str]:
    """Names of the matrices (or their parts) that beta multiplies, for people."""
    feed_forward = {
        "all": ["gate", "up", "down"],
        "activated": ["gate", "down"],
        "linear": ["up", "down"],
    }[scales.ffn_gain]
    levels: list[str] = [s.level for s in (scales.H, scales.L) if s.beta != 1]
    if scales.share_levels and levels:
        levels = ["H+L"]
    return [f"{level}.{name}" for level in levels for name in ["value", "o", *feed_forward]]
