"""Configuration: frozen dataclasses, the single source of every setting's meaning and default.

Impossible values are errors that name the key.  ``settings`` builds these classes from plain
values and names an arm by the settings that can change a result.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.settings import NOT_RESULT, result_settings
from hrm_deeploop.settings import require as _require

Dtype = Literal["float32", "bfloat16"]
Preset = Literal[
    "vanilla",
    "deeploop",
    "deepnorm",
    "asymmetric",
    "alpha_only",
    "beta_only",
    "looped_eps",
    "custom",
    "measured",
]
FfnGain = Literal["activated", "all", "linear"]

MAX_THREADS = 1024
# Settings that a workload does not read: one that departs from its default would only split one
# arm into two names.
UNREAD = {"arc": ("lm.",), "lm": ("data.", "arch.", "residual.", "optim.puzzle_emb_")}


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which tasks, and how they are augmented (``arc_data.build``)."""

    name: Literal["mini", "mini_dev", "arc1", "arc1_concept", "arc2", "folder", "kaggle"] = "mini"
    """Which tasks: a name ``arc_data.sources`` knows."""
    num_aug: int = 1000
    """Variants per task beside the original."""
    seed: int = 42
    """Seed of the augmentation; separate from the run's seed."""
    canvas: int = 30
    """Side of the square token canvas, cells."""
    protocol: Literal["published", "strict"] = "published"
    """``strict``: nothing of evaluation tasks is trained on; puzzle ids stay the same."""
    role: Literal["evaluation", "train"] = "evaluation"
    """Own sources: whether their evaluation tasks' test pairs are held out."""
    leave_out_large: bool = False
    """Leave out tasks larger than the canvas and list them; off: they are an error."""
    concept_dir: str | None = field(default=None, metadata=NOT_RESULT)
    """Folder of ConceptARC's concept folders (``arc1_concept``)."""
    folder_dir: str | None = field(default=None, metadata=NOT_RESULT)
    """Folder of ARC JSON files (``folder``)."""
    challenges_file: str | None = field(default=None, metadata=NOT_RESULT)
    """ARC Prize file of challenges (``kaggle``)."""
    solutions_file: str | None = field(default=None, metadata=NOT_RESULT)
    """Its solutions; None: not known, for prediction only."""
    more_challenges_file: str | None = field(default=None, metadata=NOT_RESULT)
    """A second file of challenges, such as training beside evaluation."""
    more_solutions_file: str | None = field(default=None, metadata=NOT_RESULT)
    """Its solutions."""

    def __post_init__(self) -> None:
        _require(self.num_aug >= 0, f"data.num_aug must be 0 or more; got {self.num_aug}")
        _require(1 <= self.canvas <= 30, f"data.canvas must be in 1..30; got {self.canvas}")
        _require(0 <= self.seed < 2**32, f"data.seed must be in 0..4294967295; got {self.seed}")
        own = self.name in ("folder", "kaggle")
        _require(
            own or self.role == "evaluation",
            f"data.role={self.role} has no effect with data={self.name}; it is for own sources",
        )
        for key, needed, needs in (
            ("folder_dir", self.name == "folder", "data=folder"),
            ("challenges_file", self.name == "kaggle", "data=kaggle"),
            ("solutions_file", self.challenges_file, "data.challenges_file"),
            ("more_challenges_file", self.challenges_file, "data.challenges_file"),
            ("more_solutions_file", self.more_challenges_file, "data.more_challenges_file"),
        ):
            _require(
                bool(needed) or getattr(self, key) is None,
                f"data.{key} has no effect without {needs}",
            )

    @property
    def kaggle_files(self) -> tuple[tuple[str, str | None], ...]:
        """Pairs of challenges and solutions files."""
        pairs = (
            (self.challenges_file, self.solutions_file),
            (self.more_challenges_file, self.more_solutions_file),
        )
        return tuple((challenges, solutions) for challenges, solutions in pairs if challenges)


@dataclass(frozen=True, kw_only=True)
class ArchConfig:
    """The reasoner.  Defaults: the published HRM for ARC."""

    hidden_size: int = 512
    num_heads: int = 8
    expansion: float = 4.0
    """SwiGLU width: inner size round(expansion * hidden * 2/3), up to a multiple of 256."""
    H_layers: int = 4
    """Blocks of the high level; 0 with ``share_levels``."""
    L_layers: int = 4
    """Blocks of the low level (of both, with ``share_levels``)."""
    H_cycles: int = 2
    L_cycles: int = 2
    halt_max_steps: int = 16
    """Most segments an example is trained for; the number run in evaluation."""
    halt_exploration_prob: float = 0.1
    """Probability that a row must run a random number of segments before it may halt."""
    pos_encodings: Literal["rope", "learned"] = "rope"
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    puzzle_emb_ndim: int | None = None
    """Length of a puzzle's table row; None: hidden_size."""
    puzzle_emb_len: int | None = None
    """P, puzzle tokens in front; None: as many as the row fills."""
    grad_scope: Literal["last_step", "last_cycle"] = "last_step"
    """What has gradient: the last L and H step (published HRM), or the whole last outer cycle."""
    share_levels: bool = False
    """One set of L_layers blocks serves as both levels (TRM)."""
    q_continue: bool = True
    """Learn a continue value and halt by comparison (HRM); off: halt when q_halt > 0 (TRM)."""
    loss: Literal["stablemax", "softmax"] = "stablemax"
    forward_dtype: Dtype = "bfloat16"
    """Compute dtype: weights and streams in the forward pass; master weights are float32."""
    residual_sum: Literal["float32", "compute"] = "float32"
    """Dtype in which alpha * x + f(x) is summed."""
    carry_dtype: Literal["compute", "float32"] = "compute"
    """Dtype in which the residual stream is stored between sublayers and segments."""

    def __post_init__(self) -> None:
        d, n = self.hidden_size, self.num_heads
        _require(n >= 1, f"arch.num_heads must be 1 or more; got {n}")
        factor, what = (2 * n, "twice ") if self.pos_encodings == "rope" else (n, "")
        _require(
            d >= 1 and d % factor == 0,
            f"arch.hidden_size must be a multiple of {what}arch.num_heads with "
            f"arch.pos_encodings={self.pos_encodings}; got {d} and {n}; try "
            f"{max(1, round(d / factor)) * factor}",
        )
        for name in ("H_cycles", "L_cycles", "L_layers", "halt_max_steps"):
            value = getattr(self, name)
            _require(value >= 1, f"arch.{name} must be 1 or more; got {value}")
        if self.share_levels:
            _require(
                self.H_layers == 0,
                "arch.share_levels=true uses the L_layers blocks for both levels; got "
                f"arch.H_layers={self.H_layers}; set arch.H_layers=0",
            )
        else:
            _require(self.H_layers >= 1, f"arch.H_layers must be 1 or more; got {self.H_layers}")
        _require(
            0 <= self.halt_exploration_prob <= 1,
            f"arch.halt_exploration_prob must be in [0, 1]; got {self.halt_exploration_prob}",
        )
        for name in ("expansion", "rope_theta", "rms_norm_eps", "puzzle_emb_ndim"):
            value = getattr(self, name)
            _require(value is None or value > 0, f"arch.{name} must be positive; got {value}")
        _require(self.expansion <= 64, f"arch.expansion must be at most 64; got {self.expansion}")
        _require(
            self.num_puzzle_tokens * d >= self.puzzle_row_size,
            f"arch.puzzle_emb_len={self.num_puzzle_tokens} tokens of {d} cannot hold "
            f"arch.puzzle_emb_ndim={self.puzzle_row_size}",
        )

    @property
    def puzzle_row_size(self) -> int:
        """Length of one row of the puzzle table."""
        return self.hidden_size if self.puzzle_emb_ndim is None else self.puzzle_emb_ndim

    @property
    def num_puzzle_tokens(self) -> int:
        """P."""
        if self.puzzle_emb_len is not None:
            return self.puzzle_emb_len
        return -(-self.puzzle_row_size // self.hidden_size)

    @property
    def num_H_blocks(self) -> int:
        """K_H, physical blocks that serve the high level."""
        return self.L_layers if self.share_levels else self.H_layers

    @property
    def num_L_blocks(self) -> int:
        """K_L, physical blocks that serve the low level."""
        return self.L_layers

    @property
    def mlp_size(self) -> int:
        """I, the SwiGLU's inner size."""
        return -(-round(self.expansion * self.hidden_size * 2 / 3) // 256) * 256


@dataclass(frozen=True, kw_only=True)
class LevelResidualConfig:
    """One level's departures from the common residual preset; None: as the preset says."""

    preset: Preset | None = None
    p: float | None = None
    """Exponent."""
    c: float | None = None
    """alpha = (c N)^p."""
    d: float | None = None
    """beta = (d N)^(-p)."""
    depth: Literal["paper", "visible"] | float | None = None
    """This level's own N."""
    alpha: float | None = None
    beta: float | None = None
    gamma: float | None = None
    """Alignment exponent, for preset ``measured``: p = (1 + gamma) / 4."""
    eps_lambda: float | None = None
    """lambda of preset ``looped_eps``; None: 1."""

    def __post_init__(self) -> None:
        for name in ("c", "d", "alpha", "beta", "eps_lambda"):
            value = getattr(self, name)
            _require(
                value is None or 1e-6 <= value <= 1e6,
                f"residual.*.{name} must be in [1e-6, 1e6]; got {value}",
            )
        _check_depth("residual.*.depth", self.depth)


def _check_depth(key: str, depth: str | float | None) -> None:
    _require(
        depth is None or isinstance(depth, str) or 0 < depth <= 1e6,
        f"{key} must be paper, visible or a number in (0, 1e6]; got {depth}",
    )


@dataclass(frozen=True, kw_only=True)
class ResidualConfig:
    """Residual scaling of both levels (``scaling.resolve``)."""

    preset: Preset = "vanilla"
    depth: Literal["paper", "visible"] | float = "paper"
    """N for the formulas: the paper's N_g, counted from grad_scope, or a number."""
    ffn_gain: FfnGain = "activated"
    """Feed-forward matrices that beta scales: gate and down, all three, or up and down."""
    H: LevelResidualConfig = LevelResidualConfig()
    L: LevelResidualConfig = LevelResidualConfig()
    gamma_file: str | None = field(default=None, metadata=NOT_RESULT)
    """JSON file of the kappa probe that both gammas were read from, for preset ``measured``."""

    def __post_init__(self) -> None:
        _check_depth("residual.depth", self.depth)
        presets = {level.preset or self.preset for level in (self.H, self.L)}
        _require(
            self.gamma_file is None or "measured" in presets,
            "residual.gamma_file is read by preset measured only; got preset "
            f"{' and '.join(sorted(presets))}",
        )


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizers and schedule.  Defaults: the published recipe for ARC."""

    optimizer: Literal["adam_atan2", "adamw"] = "adam_atan2"
    """Of the dense weights."""
    global_batch_size: int = 768
    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    bias_correction: Literal["outside", "inside"] = "outside"
    """Where AdamATan2's first bias correction stands: outside atan2 (published code) or inside."""
    clip_grad_norm: float | None = None
    """Largest norm of the whole gradient, which is scaled down to it; None: off."""
    puzzle_emb_lr: float = 1e-2
    puzzle_emb_weight_decay: float = 0.1
    lr_warmup_steps: int = 2000
    lr_min_ratio: float = 1.0
    """Learning rate at the end of the cosine, relative to its peak; 1: constant."""
    total_steps: int | None = None
    """Horizon of the schedule, steps; None: that of ``epochs``."""
    ema: float | None = None
    """Decay of the averaged dense weights that evaluation uses; None: off."""

    def __post_init__(self) -> None:
        _require(
            self.global_batch_size >= 1,
            f"optim.global_batch_size must be 1 or more; got {self.global_batch_size}",
        )
        for name in ("lr", "puzzle_emb_lr", "weight_decay", "puzzle_emb_weight_decay"):
            value = getattr(self, name)
            _require(
                math.isfinite(value) and value >= 0,
                f"optim.{name} must be 0 or more; got {value}",
            )
        _require(
            self.total_steps is None or self.total_steps >= 1,
            f"optim.total_steps must be 1 or more, or null; got {self.total_steps}",
        )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"optim.{name} must be in [0, 1); got {value}")
        _require(
            self.optimizer == "adam_atan2" or self.bias_correction == "outside",
            f"optim.bias_correction has no effect with optim.optimizer={self.optimizer}",
        )
        _require(
            self.clip_grad_norm is None or self.clip_grad_norm > 0,
            f"optim.clip_grad_norm must be more than 0, or null; got {self.clip_grad_norm}",
        )
        _require(
            self.lr_warmup_steps >= 0,
            f"optim.lr_warmup_steps must be 0 or more; got {self.lr_warmup_steps}",
        )
        _require(
            0 <= self.lr_min_ratio <= 1,
            f"optim.lr_min_ratio must be in [0, 1]; got {self.lr_min_ratio}",
        )
        _require(
            self.ema is None or 0 <= self.ema < 1,
            f"optim.ema must be in [0, 1) or null; got {self.ema}",
        )


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """What the run is computed on."""

    threads: int | None = field(default=None, metadata=NOT_RESULT)
    """CPU threads of torch; None: torch's own choice, recorded either way."""
    compile: bool = False
    """torch.compile the forward pass (needs a C++ compiler on a CPU)."""
    accumulate: int = field(default=1, metadata=NOT_RESULT)
    """Parts that each process cuts its rows of a batch into and computes one after the other:
    less memory, the same sums up to rounding."""

    def __post_init__(self) -> None:
        _require(
            self.accumulate >= 1,
            f"hardware.accumulate must be 1 or more; got {self.accumulate}",
        )
        _require(
            self.threads is None or 1 <= self.threads <= MAX_THREADS,
            f"hardware.threads must be in 1..{MAX_THREADS}; got {self.threads}",
        )


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Evaluation: at the end always of everything; during training when and as much as asked."""

    batch_size: int = field(default=512, metadata=NOT_RESULT)
    """Examples per forward pass."""
    every: int | None = field(default=None, metadata=NOT_RESULT)
    """Steps between evaluations during training, each of a saved checkpoint; None: none."""
    every_epochs: int | None = field(default=None, metadata=NOT_RESULT)
    """The same in epochs; evaluated at the first step that has passed them."""
    num_aug: int | None = field(default=None, metadata=NOT_RESULT)
    """During training: variants per task beside the original that vote; None: all."""
    tasks: int | None = field(default=None, metadata=NOT_RESULT)
    """During training: evaluate this many tasks, spread evenly over the sorted names; None: all."""
    documents: int | None = field(default=None, metadata=NOT_RESULT)
    """During training of a language model: this many validation documents, the first; None: all."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "every", "every_epochs", "tasks", "documents"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"eval.{name} must be 1 or more; got {value}")
        _require(
            self.num_aug is None or self.num_aug >= 0,
            f"eval.num_aug must be 0 or more; got {self.num_aug}",
        )
        _require(
            self.every is None or self.every_epochs is None,
            "eval.every and eval.every_epochs exclude each other",
        )
        during_training = self.every is not None or self.every_epochs is not None
        for name in ("num_aug", "tasks", "documents"):
            _require(
                during_training or getattr(self, name) is None,
                f"eval.{name} has no effect without eval.every or eval.every_epochs: the "
                "evaluation at the end is of everything",
            )


@dataclass(frozen=True, kw_only=True)
class DiagnosticsConfig:
    """What is looked at beside the losses; nothing here changes training."""

    every_steps: int | None = field(default=100, metadata=NOT_RESULT)
    """Steps between records with update norm and stream statistics; None: never."""
    validation_every_steps: int | None = field(default=None, metadata=NOT_RESULT)
    """Steps between records of the held-out token loss, also made at the end; None: never."""
    validation_rows: int = field(default=512, metadata=NOT_RESULT)
    """Held-out examples it is of, spread evenly over the test split, or windows of a language
    model's validation text, the first; fewer where it has fewer."""
    kappa_every_steps: int | None = field(default=None, metadata=NOT_RESULT)
    """Steps between records of kappa (alignment.py), also made at the end; None: never.  Each
    costs some 2 to 8 training steps, more where gradient sees many visits."""
    kappa_rows: int = field(default=64, metadata=NOT_RESULT)
    """Training examples or windows it is measured on, the first of the seed's order, from fresh
    states."""

    def __post_init__(self) -> None:
        for name in (
            *("every_steps", "validation_every_steps", "validation_rows"),
            *("kappa_every_steps", "kappa_rows"),
        ):
            value = getattr(self, name)
            _require(
                value is None or value >= 1, f"diagnostics.{name} must be 1 or more; got {value}"
            )


@dataclass(frozen=True, kw_only=True)
class TrackingConfig:
    """Where metrics go beside metrics.jsonl, which is always written."""

    wandb_mode: Literal["offline", "online"] | None = field(default=None, metadata=NOT_RESULT)
    """None: wandb is not imported."""
    wandb_project: str = field(default="hrm_deeploop", metadata=NOT_RESULT)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    experiment: str | None = field(default=None, metadata=NOT_RESULT)
    """Name of the file in configs/experiment the run started from."""
    workload: Literal["arc", "lm"] = "arc"
    """What is trained: the reasoner on ARC, or the looped language model, whose settings are in
    ``lm`` instead of ``data``, ``arch`` and ``residual``."""
    data: DataConfig = DataConfig()
    data_dir: str | None = field(default=None, metadata=NOT_RESULT)
    """Folder of the built data set; None: one in data/ that is named after the settings."""
    arch: ArchConfig = ArchConfig()
    residual: ResidualConfig = ResidualConfig()
    lm: LmConfig = field(default=LmConfig())
    optim: OptimConfig = OptimConfig()
    hardware: HardwareConfig = HardwareConfig()
    eval: EvalConfig = EvalConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    tracking: TrackingConfig = TrackingConfig()
    seed: int = field(default=0, metadata=NOT_RESULT)
    """Run seed: initial weights, data order, halting exploration."""
    epochs: int = 100_000
    """An epoch draws one variant of every task, or every window of the text once."""
    max_steps: int | None = None
    """Ends the run early; the schedule keeps its horizon."""
    run_dir: str | None = field(default=None, metadata=NOT_RESULT)
    """The run's folder, which must not exist; None: runs/<experiment>/<arm>-s<seed>-<UTC>."""
    device: Literal["auto", "cpu", "cuda"] = field(default="auto", metadata=NOT_RESULT)
    log_every_steps: int = field(default=20, metadata=NOT_RESULT)
    checkpoint_every_steps: int | None = field(default=None, metadata=NOT_RESULT)
    """None: not by steps; the final one is always saved."""
    checkpoint_every_minutes: float | None = field(default=10.0, metadata=NOT_RESULT)
    """None: not by time."""
    keep_last: int | None = field(default=3, metadata=NOT_RESULT)
    """Checkpoints of a run that are kept, newest first; None: all."""
    keep_every_steps: int | None = field(default=None, metadata=NOT_RESULT)
    """Keeps those at multiples of this step too."""
    keep_best: int | None = field(default=None, metadata=NOT_RESULT)
    """Keeps as many with the best score of the evaluations during training too."""
    resume: str | None = field(default=None, metadata=NOT_RESULT)
    """A run directory, or one of its checkpoints, to go on with."""
    resume_with_changes: bool = field(default=False, metadata=NOT_RESULT)
    """Allows settings that change results to differ from those the resumed run began with."""

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**63, f"seed must be in 0..2**63 - 1; got {self.seed}")
        for name in (
            "epochs",
            "max_steps",
            "log_every_steps",
            "checkpoint_every_steps",
            "keep_last",
            "keep_every_steps",
            "keep_best",
        ):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be 1 or more; got {value}")
        _require(
            self.resume is not None or not self.resume_with_changes,
            "resume_with_changes has no effect without resume=RUN_DIR",
        )
        minutes = self.checkpoint_every_minutes
        _require(
            minutes is None or minutes > 0,
            f"checkpoint_every_minutes must be more than 0; got {minutes}",
        )
        for key in result_settings(self):
            _require(
                not key.startswith(UNREAD[self.workload]),
                f"{key} has no effect with workload={self.workload}; remove it",
            )

    def rows_per_part(self, num_processes: int) -> int:
        """Rows that one of ``num_processes`` processes computes at once.

        Raises:
            ValueError: If the global batch cannot be cut into equal parts.
        """
        batch, num_parts = self.optim.global_batch_size, self.hardware.accumulate
        _require(
            batch % (num_processes * num_parts) == 0,
            f"optim.global_batch_size={batch} cannot be cut into {num_processes} processes times "
            f"hardware.accumulate={num_parts} equal parts",
        )
        return batch // (num_processes * num_parts)

    @property
    def resolved_data_dir(self) -> str:
        """``data_dir``, or the place ``data build`` puts this data set by default."""
        if self.data_dir is not None:
            return self.data_dir
        if self.workload == "lm":
            return f"data/lm-{self.lm.dataset}"
        data = self.data
        protocol = "-strict" if data.protocol == "strict" else ""
        return f"data/{data.name}-canvas{data.canvas}-aug{data.num_aug}-seed{data.seed}{protocol}"


PATH_KEYS = (
    "data_dir",
    "run_dir",
    "resume",
    "data.concept_dir",
    "data.folder_dir",
    "data.challenges_file",
    "data.solutions_file",
    "data.more_challenges_file",
    "data.more_solutions_file",
    "residual.gamma_file",
)
"""Settings whose values are paths: the command line takes them literally."""
