"""kappa: how the visits of one looped parameter agree, measured on a model.

DeepLoop's bound has a factor kappa that says whether the R visits of a sublayer push its
parameters, and through them the output, the same way (kappa = R) or as if untied (kappa = 1).
Here it is measured, for visit r of sublayer j:

    G_r   gradient of the training loss when only that visit's use of the parameters is live
    U_r   change of the logits that the step d theta makes through that visit alone: a JVP
    kappa = ||sum U_r|| ||sum G_r|| / (R max ||U_r|| max ||G_r||)

with d theta the first AdamATan2 step at learning rate 1 on the same batch, a sublayer's matrices
as one vector and Euclidean norms.

**Source**: DeepLoop, arXiv 2607.13491 v2, which assumes kappa_R = Theta(R^gamma) and measures none
of it; the exponent that gamma asks for is (1 + gamma) / 4.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hrm_deeploop.config import OptimConfig
from hrm_deeploop.regions import SUBLAYERS, Blocks, Region, first_optimizer_step
from hrm_deeploop.scaling import DEEPNORM_EXPONENT


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """How R vectors v_r, one per visit, agree; None where nothing moves."""

    norms: list[float]
    """||v_r||."""
    sum_norm: float
    """||sum_r v_r||."""
    alignment: float | None
    """||sum_r v_r||^2 / sum_r ||v_r||^2, in [0, R]: 1 orthogonal, R aligned and equal."""
    cosines: list[list[float | None]]
    """Cosine of each two visits."""


@dataclass(frozen=True, kw_only=True)
class SublayerAlignment:
    """kappa_j of one sublayer, with the write side (G_r) and the read side (U_r)."""

    block: int
    sublayer: str
    kappa: float | None
    write: Alignment
    read: Alignment


@dataclass(frozen=True, kw_only=True)
class LevelAlignment:
    """kappa of one set of blocks: the largest of its sublayers'."""

    rounds: int
    """R_g, visits that the gradient sees."""
    kappa: float | None
    gamma: float | None
    """log kappa / log R_g; None at R_g = 1."""
    exponent: float | None
    """p that gamma asks for, (1 + gamma) / 4."""
    sublayers: list[SublayerAlignment]


@dataclass(frozen=True, kw_only=True)
class KappaReport:
    """What ``measure_kappa`` found.

    Attributes:
        loss: The training loss of the batch: of the reasoner per row, of the language model per
            token.
        levels: ``"H"`` and ``"L"``, or ``"H+L"`` where the levels share their blocks; ``"blocks"``
            of the language model.
        bound_worst_case: The stability bound at the run's alpha and beta with kappa = R_g; None
            where the model has no alpha.
        bound_measured: The same with the kappa measured.
    """

    loss: float
    levels: dict[str, LevelAlignment]
    bound_worst_case: float | None
    bound_measured: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def metrics(self) -> dict[str, float]:
        """The few numbers worth logging in training: kappa, gamma, both sides, the bound."""
        found = {"kappa_bound": self.bound_measured}
        for name, level in self.levels.items():
            found[f"kappa_{name}"] = level.kappa
            found[f"gamma_{name}"] = level.gamma
            found[f"write_alignment_{name}"] = _largest(s.write.alignment for s in level.sublayers)
            found[f"read_alignment_{name}"] = _largest(s.read.alignment for s in level.sublayers)
        return {key: value for key, value in found.items() if value is not None}


def measure_kappa(region: Region[Any], optim: OptimConfig) -> KappaReport:
    """Measures kappa of every sublayer on a region's batch.

    Leaves model, batch and random state alone; works on a model whose step is compiled.  Cost
    for V visible calls of levels of K blocks: one training step, and for each of the 2 K V
    sublayer visits one forward-mode pass (two to three forwards) from that call to the end, in all
    some 2.5 K V (V + 1) calls of a level; on mini_deeploop 2 eager training steps at V = 2, 2 to 4
    at V = 3, 8 at V = 9.  Memory: V gradients of a level's weights, and the batch's logits some
    3 V times.

    Args:
        region: Model and batch; computes in the model's own dtypes.
        optim: Betas, weight decay and bias correction of the step d theta.

    Returns:
        Per level and sublayer, alignments and kappa.
    """
    gradients, loss = region.per_visit_gradients()
    levels = {}
    for name, visits in region.visits_by_level().items():
        blocks = region.blocks[visits[0]]
        sublayers = [
            _measure_sublayer(region, visits, gradients, index, sublayer, optim)
            for index in range(len(blocks))
            for sublayer in SUBLAYERS
        ]
        levels[name] = summarise_level(len(visits), sublayers)
    known = {name: level.kappa for name, level in levels.items() if level.kappa is not None}
    return KappaReport(
        loss=loss,
        levels=levels,
        bound_worst_case=region.worst_bound,
        bound_measured=region.bound_at(known) if len(known) == len(levels) else None,
    )


def _measure_sublayer(
    region: Region[Any],
    visits: list[int],
    gradients: list[Blocks],
    block: int,
    sublayer: str,
    optim: OptimConfig,
) -> SublayerAlignment:
    names = SUBLAYERS[sublayer]
    per_visit = [[getattr(gradients[v][block], name) for name in names] for v in visits]
    masters = region.block_of(visits[0], block).masters()
    values = [getattr(masters, name) for name in names]
    total = [torch.stack(own).sum(0) for own in zip(*per_visit, strict=True)]
    step = dict(zip(names, first_optimizer_step(values, total, optim), strict=True))
    changes = [region.sensitivity(v, block, step) for v in visits]
    write = align(_gram([torch.cat([g.flatten() for g in own]) for own in per_visit]))
    read = align(_gram(changes))
    return SublayerAlignment(
        block=block, sublayer=sublayer, kappa=kappa(write, read), write=write, read=read
    )


def _gram(vectors: Sequence[Tensor]) -> NDArray[np.float64]:
    """Inner products of each two vectors, (R, R) float64."""
    stacked = torch.stack([vector.flatten() for vector in vectors]).double()  # (R, n)
    return (stacked @ stacked.T).cpu().numpy()


def cosines(gram: NDArray[np.float64]) -> list[list[float | None]]:
    """Cosine of each two vectors from their inner products, (R, R); None where one is zero."""
    norms = np.sqrt(gram.diagonal())
    return [
        [float(g / n) if n > 0 else None for g, n in zip(row, lengths, strict=True)]
        for row, lengths in zip(gram, np.outer(norms, norms), strict=True)
    ]


def align(gram: NDArray[np.float64]) -> Alignment:
    """Alignment of R vectors from their inner products, (R, R)."""
    squares = gram.diagonal()
    norms = np.sqrt(squares)
    sum_square = max(float(gram.sum()), 0.0)  # rounding can take a cancelled sum below 0
    total = float(squares.sum())
    return Alignment(
        norms=norms.tolist(),
        sum_norm=math.sqrt(sum_square),
        alignment=sum_square / total if total > 0 else None,
        cosines=cosines(gram),
    )


def kappa(write: Alignment, read: Alignment) -> float | None:
    """kappa_j, in [0, R]; exactly 1 at R = 1; None where nothing moves in any of R > 1 visits."""
    rounds = len(write.norms)
    if rounds == 1:
        return 1.0
    largest = max(read.norms) * max(write.norms)
    return read.sum_norm * write.sum_norm / (rounds * largest) if largest > 0 else None


def summarise_level(rounds: int, sublayers: list[SublayerAlignment]) -> LevelAlignment:
    """A level's kappa, gamma and exponent from its sublayers."""
    largest = _largest(s.kappa for s in sublayers)
    gamma = None
    exponent: float | None = DEEPNORM_EXPONENT  # what a block that is visited once needs
    if rounds > 1:
        gamma = math.log(largest) / math.log(rounds) if largest else None
        exponent = None if gamma is None else (1 + gamma) / 4
    return LevelAlignment(
        rounds=rounds, kappa=largest, gamma=gamma, exponent=exponent, sublayers=sublayers
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def gamma_slope(cycles: Sequence[int], kappas: Sequence[float]) -> float:
    """gamma over several loop counts: the least-squares slope of log kappa on log C_L.

    Args:
        cycles: C_L or R, at least two different ones.
        kappas: kappa at each, > 0.

    Raises:
        ValueError: If there are fewer than two different loop counts or a kappa is not positive.
    """
    if len(set(cycles)) < 2 or min(kappas) <= 0:
        raise ValueError(
            "gamma over loop counts needs two or more different L_cycles or rounds and positive "
            f"kappas; got {list(cycles)} and kappas {list(kappas)}"
        )
    slope, _ = np.polyfit(np.log(cycles), np.log(kappas), 1)
    return float(slope)
