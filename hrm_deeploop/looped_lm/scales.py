"""Which alpha, beta and eps an arm of the looped language model has."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.scaling import (
    DEEPLOOP_EXPONENT,
    DEEPNORM_EXPONENT,
    alpha_for,
    beta_for,
    inverse_loop_eps,
)


@dataclass(frozen=True, kw_only=True)
class LoopScale:
    """The residual scaling of a looped stack, resolved to numbers.

    Attributes:
        arm: The arm they came from.
        K: Physical blocks.
        R: Rounds.
        N: Unrolled blocks, K R.
        p: Exponent; None where no exponent was used.
        alpha: Skip multiplier of the sandwich arms at run time; 1 in the others.
        beta: Gain of value, output and feed-forward matrices at initialisation.
        eps: Branch multiplier of the pre-norm arms at run time; 1 in the others.
        inner_norm: Whether a norm stands before the branch.
        ffn_gain: SwiGLU matrices that beta scales; None where beta is 1 or the MLP is GELU.
    """

    arm: str
    K: int
    R: int
    N: int
    p: float | None
    alpha: float
    beta: float
    eps: float
    inner_norm: bool
    ffn_gain: str | None

    def bound_at(self, kappa: float) -> float | None:
        """The stability bound M kappa (beta/alpha)^2, M = 2N sublayer visits.

        Args:
            kappa: Alignment of the visits, in [0, R].

        Returns:
            The bound; None in the pre-norm arms, which have no alpha: it is not derived for them.

        **Source**: arXiv 2607.13491 v2.
        """
        return None if self.p is None else 2 * self.N * kappa * (self.beta / self.alpha) ** 2

    def as_dict(self) -> dict[str, Any]:
        """The numbers that a result records."""
        return asdict(self)


def resolve_loop(config: LmConfig) -> LoopScale:
    """Turns an arm into numbers.

    Args:
        config: The model.

    **Source**: arXiv 2607.13491 v2 (alpha, beta at N = K R, at R = 1 too); arXiv 2606.18524
    (eps = lambda/(R sqrt(K)), and lambda/sqrt(R K), the rule it argues against).
    """
    K, R = config.num_blocks, config.rounds
    exponents = {"deeploop": DEEPLOOP_EXPONENT, "deepnorm": DEEPNORM_EXPONENT, "custom": config.p}
    p = exponents.get(config.arm)
    alpha = beta = eps = 1.0
    if p is not None:
        alpha, beta = alpha_for(K * R, p), beta_for(K * R, p)
    elif config.arm == "eps_loop":
        eps = 1 / inverse_loop_eps(K, R, config.eps_lambda)
    elif config.arm == "eps_sqrt":
        eps = (config.eps_lambda or 1.0) / math.sqrt(R * K)
    return LoopScale(
        arm=config.arm,
        K=K,
        R=R,
        N=K * R,
        p=p,
        alpha=alpha,
        beta=beta,
        eps=eps,
        inner_norm=config.inner_norm,
        ffn_gain=config.ffn_gain if p is not None and config.mlp == "swiglu" else None,
    )


def format_scale(scale: LoopScale) -> str:
    """The lines printed at the start of a run."""
    exponent = "-" if scale.p is None else f"{scale.p:g}"
    form = f"x + {scale.eps:.6g} f(Norm(x))"
    if scale.p is not None:
        inner = "f(Norm(x))" if scale.inner_norm else "f(x)"
        form = f"Norm({scale.alpha:.6g} x + {inner})"
    return (
        f"arm {scale.arm}: x <- {form}\n"
        f"K {scale.K}  R {scale.R}  N {scale.N}  p {exponent}  beta {scale.beta:.6g}"
        + (f" on value, o and feed-forward ({scale.ffn_gain or 'up, down'})" if scale.p else "")
    )
