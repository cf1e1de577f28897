"""What a workload calls the things that sweeps vary.  No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_args

from hrm_deeploop.config import Preset, TrainConfig
from hrm_deeploop.looped_lm.config import Arm


@dataclass(frozen=True, kw_only=True)
class SweepTerms:
    """A workload's names.

    Attributes:
        arm_key: What an arm's one word is given to on the command line.
        arm_field: The field of the configuration that then holds the word.
        arms: The words.
        baseline: The arm without scaling.
        exponent_arm: The arm whose exponents ``p=`` sets.
        exponent_keys: Level -> the setting of its exponent; the level that is looped most is last.
        loops_key: The setting that counts loops.
        loop_name: Its symbol.
    """

    arm_key: str
    arm_field: str
    arms: tuple[str, ...]
    baseline: str
    exponent_arm: str
    exponent_keys: Mapping[str, str]
    loops_key: str
    loop_name: str

    def arm(self, config: TrainConfig) -> str:
        """The word for a run's arm."""
        return _get(config, self.arm_field)

    def exponents(self, config: TrainConfig) -> dict[str, float | None]:
        """Exponents by level; None: none was set for this arm."""
        return {level: _get(config, key) for level, key in self.exponent_keys.items()}

    def loops(self, config: TrainConfig) -> int:
        """How often a run loops."""
        return _get(config, self.loops_key)


def _get(config: TrainConfig, key: str) -> Any:
    return attrgetter(key)(config)


TERMS = {
    "arc": SweepTerms(
        arm_key="residual",
        arm_field="residual.preset",
        arms=get_args(Preset),
        baseline="vanilla",
        exponent_arm="deeploop",
        exponent_keys={"H": "residual.H.p", "L": "residual.L.p"},
        loops_key="arch.L_cycles",
        loop_name="C_L",
    ),
    "lm": SweepTerms(
        arm_key="lm.arm",
        arm_field="lm.arm",
        arms=get_args(Arm),
        baseline="base",
        exponent_arm="custom",
        exponent_keys={"blocks": "lm.p"},
        loops_key="lm.rounds",
        loop_name="R",
    ),
}
