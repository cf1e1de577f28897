"""Settings of the looped language model and its text."""

import re
from dataclasses import dataclass, field
from typing import Literal

from hrm_deeploop.settings import NOT_RESULT, require

Arm = Literal["base", "deeploop", "deepnorm", "custom", "eps_loop", "eps_sqrt"]

SWIGLU_MULTIPLE = 64
POST_NORM = ("deeploop", "deepnorm", "custom")
EPS = ("eps_loop", "eps_sqrt")
POSITIVE = ("expansion", "rope_theta", "rms_norm_eps", "init_std", "embedding_std", "eps_lambda")
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class LmConfig:
    """A looped GPT.  Defaults: the small size of arXiv 2607.13491 v2; what the paper leaves open
    says so.
    """

    dataset: str = "stdlib"
    """Name of the token folder that ``lm data`` made."""
    num_blocks: int = 12
    """K, physical blocks."""
    rounds: int = 1
    """R, how often they are run one after the other; N = K R unrolled blocks."""
    hidden_size: int = 768
    num_heads: int = 12
    """Not published."""
    context: int = 1024
    """Tokens of a training window, and the most that a prediction can see."""
    mlp: Literal["gelu", "swiglu"] = "gelu"
    """Not published."""
    expansion: float = 4.0
    """Inner size relative to hidden_size, of SwiGLU times 2/3. Not published."""
    arm: Arm = "base"
    """Residual form: pre-norm x + f(Norm(x)) (base), with eps on the branch (eps_loop, eps_sqrt);
    sandwich Norm(alpha x + f(Norm(x))) (deeploop, deepnorm, custom)."""
    p: float | None = None
    """Exponent of arm custom: alpha = (2N)^p, beta = (8N)^(-p)."""
    eps_lambda: float | None = None
    """lambda of the eps arms; None: 1."""
    inner_norm: bool = True
    """Norm before the branch in the sandwich arms; off: plain post-norm."""
    input_norm: bool = True
    """Norm of the input embedding before the loop."""
    ffn_gain: Literal["activated", "all", "linear"] = "activated"
    """SwiGLU matrices that beta scales, as ``residual.ffn_gain``; of GELU always both."""
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    init_std: float | None = None
    """Standard deviation of the initial matrices; None: 1/sqrt(fan in). Not published."""
    embedding_std: float = 0.02
    """Standard deviation of the initial embedding, which is the head too. Not published."""
    forward_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Compute dtype; master weights are float32."""
    stream_dtype: Literal["float32", "compute"] = "float32"
    """Dtype in which the residual stream is stored between sublayers; sums are float32."""
    activation_checkpointing: bool = field(default=False, metadata=NOT_RESULT)
    """Keep only each block's input for the backward pass and compute the block again there."""

    def __post_init__(self) -> None:
        require(
            DATASET_NAME.fullmatch(self.dataset) is not None,
            f"lm.dataset must be letters, digits, '.', '_' and '-'; got {self.dataset!r}",
        )
        for name in ("num_blocks", "rounds", "hidden_size", "num_heads", "context"):
            value = getattr(self, name)
            require(value >= 1, f"lm.{name} must be 1 or more; got {value}")
        factor = 2 * self.num_heads
        require(
            self.hidden_size % factor == 0,
            f"lm.hidden_size must be a multiple of twice lm.num_heads; got {self.hidden_size} and "
            f"{self.num_heads}; try {max(1, round(self.hidden_size / factor)) * factor}",
        )
        for name in POSITIVE:
            value = getattr(self, name)
            require(value is None or value > 0, f"lm.{name} must be positive; got {value}")
        self._check_arm()

    def _check_arm(self) -> None:
        if self.arm == "custom":
            require(
                self.p is not None and 0 <= self.p <= 2,
                f"lm.arm=custom needs lm.p, an exponent in [0, 2]; got {self.p}",
            )
        is_post_norm = self.arm in POST_NORM
        scaled_swiglu = is_post_norm and self.mlp == "swiglu"
        for name, is_read, default in (
            ("p", self.arm == "custom", None),
            ("eps_lambda", self.arm in EPS, None),
            ("inner_norm", is_post_norm, True),
            ("ffn_gain", scaled_swiglu, "activated"),
        ):
            value = getattr(self, name)
            require(
                is_read or value == default,
                f"lm.{name}={value} has no effect with lm.arm={self.arm} and lm.mlp={self.mlp}; "
                "remove it",
            )

    @property
    def is_post_norm(self) -> bool:
        """Whether the stream itself is normalised after every sublayer."""
        return self.arm in POST_NORM

    @property
    def mlp_size(self) -> int:
        """I, the feed-forward's inner size."""
        size = self.expansion * self.hidden_size
        if self.mlp == "gelu":
            return round(size)
        return -(-round(size * 2 / 3) // SWIGLU_MULTIPLE) * SWIGLU_MULTIPLE
