"""The hierarchical reasoner: embeddings, the H and L levels, one segment, the heads.

One model with options: HRM and TRM are two files in configs/arch.  Parameter names are those of
the published checkpoints below ``model.inner.``.

**Source**: HRM, arXiv 2506.21734, code @42410da; TRM, arXiv 2510.04871, code @e7b6871.
Differs: alpha on the skips and beta at initialisation (``scaling``), float32 residual sum, the
puzzle table lives in ``puzzle_embedding`` and is not a parameter of this module.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hrm_deeploop.config import ArchConfig
from hrm_deeploop.layers import (
    Block,
    BlockWeights,
    Embedding,
    Linear,
    at_least_float32,
    attention,
    residual_norm,
    rotary_table,
    swiglu,
    trunc_normal_,
)
from hrm_deeploop.scaling import LevelName, ResidualScales

Q_HEAD_BIAS = -5.0  # both q values start near 0: no early halting
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Level(nn.Module):
    """Parameters of one level's blocks."""

    def __init__(self, num_blocks: int, hidden_size: int, mlp_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(hidden_size, mlp_size) for _ in range(num_blocks))

    def blocks(self) -> list[Block]:
        """The blocks, first to last."""
        return [cast(Block, layer) for layer in self.layers]


class Weights(NamedTuple):
    """All dense weights in the compute dtype, cast once per step."""

    tokens: Tensor
    positions: Tensor | None
    H: tuple[BlockWeights, ...]
    L: tuple[BlockWeights, ...]
    lm_head: Tensor
    q_head: Tensor
    q_head_bias: Tensor


class LevelCall(NamedTuple):
    """One call of a level in a segment.

    Attributes:
        level: Whose state it renews.
        visible: Whether gradient flows through it; the visible calls are a segment's last.
        is_last: Whether it ends the segment.
    """

    level: LevelName
    visible: bool
    is_last: bool


# What a sublayer did: the stream before it, its update, the stream after it; (B, S, D) each.
OnSublayer = Callable[[Tensor, Tensor, Tensor], None]


class Heads(NamedTuple):
    """What is read from z_H: logits (B, seq_len, V) compute dtype; q's (B,) float32."""

    logits: Tensor
    q_halt_logits: Tensor
    q_continue_logits: Tensor


class HRM(nn.Module):
    """The reasoner's dense parameters and the arithmetic of one segment.

    Args:
        arch: Architecture.
        scales: Resolved residual scaling.
        vocab_size: V.
        seq_len: Cells of the canvas; S = P + seq_len.

    A new model's weights are undefined until ``init_weights`` or ``load_state_dict``.
    """

    H_init: Tensor
    L_init: Tensor
    cos: Tensor
    sin: Tensor

    def __init__(
        self, arch: ArchConfig, scales: ResidualScales, *, vocab_size: int, seq_len: int
    ) -> None:
        super().__init__()
        self.arch = arch
        self.scales = scales
        self.vocab_size = vocab_size
        self.seq_len = seq_len
        self.compute_dtype = DTYPES[arch.forward_dtype]
        self.stream_dtype = torch.float32 if arch.carry_dtype == "float32" else self.compute_dtype
        d, num_tokens = arch.hidden_size, arch.num_puzzle_tokens + seq_len
        self.embed_tokens = Embedding(vocab_size, d)
        if arch.pos_encodings == "learned":
            self.embed_pos = Embedding(num_tokens, d)
        else:
            cos, sin = rotary_table(num_tokens, d // arch.num_heads, arch.rope_theta)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        if not arch.share_levels:
            self.H_level = Level(arch.H_layers, d, arch.mlp_size)
        self.L_level = Level(arch.L_layers, d, arch.mlp_size)
        self.lm_head = Linear(d, vocab_size)
        self.q_head = Linear(d, 2, bias=True)
        self.register_buffer("H_init", torch.empty(d))
        self.register_buffer("L_init", torch.empty(d))

    @property
    def num_tokens(self) -> int:
        """S."""
        return self.arch.num_puzzle_tokens + self.seq_len

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draws the initial weights, then applies beta: the only place that beta ever acts.

        The draws do not depend on the residual preset, so arms with one seed start from the same
        weights up to beta.

        Args:
            generator: CPU generator, seeded with the run seed.
        """
        d = self.arch.hidden_size
        for name, parameter in self.named_parameters():
            if name == "q_head.weight":
                parameter.zero_()
            elif name == "q_head.bias":
                parameter.fill_(Q_HEAD_BIAS)
            else:
                is_embedding = name.endswith("embedding_weight")
                fan_in = d if is_embedding else parameter.shape[1]
                trunc_normal_(parameter, 1 / math.sqrt(fan_in), generator)
        for state in (self.H_init, self.L_init):
            # Rounded through the compute dtype: the published states are stored in it.
            state.copy_(trunc_normal_(torch.empty(d), 1.0, generator).to(self.compute_dtype))
        levels = [(self.L_level, self.scales.L)]
        if not self.arch.share_levels:
            levels.append((self.H_level, self.scales.H))
        for level, scale in levels:
            if scale.beta != 1:
                for block in level.blocks():
                    block.scale_branches_(scale.beta, self.scales.ffn_gain)

    def weights(self) -> Weights:
        """Casts every dense weight to the compute dtype; differentiable."""
        dtype = self.compute_dtype
        L = tuple(block.weights(dtype) for block in self.L_level.blocks())
        H = L
        if not self.arch.share_levels:
            H = tuple(block.weights(dtype) for block in self.H_level.blocks())
        learned = self.arch.pos_encodings == "learned"
        assert self.q_head.bias is not None
        return Weights(
            tokens=self.embed_tokens.embedding_weight.to(dtype),
            positions=self.embed_pos.embedding_weight.to(dtype) if learned else None,
            H=H,
            L=L,
            lm_head=self.lm_head.weight.to(dtype),
            q_head=self.q_head.weight.to(dtype),
            q_head_bias=self.q_head.bias.to(dtype),
        )

    def embed(self, w: Weights, inputs: Tensor, puzzle_rows: Tensor) -> Tensor:
        """Input embedding of the puzzle tokens and the cells.

        Args:
            w: Cast weights.
            inputs: (B, seq_len) integer tokens.
            puzzle_rows: (B, puzzle_emb_ndim) float32 rows of the puzzle table.

        Returns:
            (B, S, D), compute dtype.
        """
        arch = self.arch
        dtype = self.compute_dtype
        # A product, so that its gradient is one too and sums in one order; the gradient of a
        # compiled look-up adds atomically, in any order, and no two runs would be equal.
        words = torch.arange(self.vocab_size, device=inputs.device)
        one_hot = (inputs.unsqueeze(-1) == words).to(dtype)  # (B, seq_len, V)
        cells = one_hot @ w.tokens  # (B, seq_len, D)
        room = arch.num_puzzle_tokens * arch.hidden_size - arch.puzzle_row_size
        puzzle = F.pad(puzzle_rows.to(dtype), (0, room))
        puzzle = puzzle.unflatten(1, (arch.num_puzzle_tokens, arch.hidden_size))  # (B, P, D)
        tokens = torch.cat((puzzle, cells), dim=1)  # (B, S, D)
        if w.positions is not None:
            tokens = math.sqrt(0.5) * (tokens + w.positions)
        return math.sqrt(arch.hidden_size) * tokens

    def residual_step(self, x: Tensor, update: Tensor, alpha: float) -> Tensor:
        """rms_norm(alpha * x + update), summed and stored as the architecture says."""
        arch = self.arch
        return residual_norm(
            x,
            update,
            alpha=alpha,
            eps=arch.rms_norm_eps,
            sum_in_float32=arch.residual_sum == "float32",
        )

    def level(
        self,
        blocks: tuple[BlockWeights, ...],
        alpha: float,
        x: Tensor,
        injection: Tensor,
        *,
        num_read: int | None = None,
        on_sublayer: OnSublayer | None = None,
    ) -> Tensor:
        """blocks(x + injection), every residual step post-norm with alpha on the skip.

        Args:
            blocks: The level's weights.
            alpha: The level's skip multiplier.
            x: State of the level, (B, S, D), stream dtype.
            injection: What is added to it first, (B, S, D).
            num_read: Compute the new state of the first tokens only; None: of all.
            on_sublayer: Told what every sublayer did, attention and SwiGLU in turn.

        Returns:
            The new state, (B, S or num_read, D), stream dtype.
        """
        arch = self.arch
        rotary = (self.cos, self.sin) if arch.pos_encodings == "rope" else None
        dtype = self.compute_dtype

        def step(x: Tensor, update: Tensor) -> Tensor:
            new = self.residual_step(x, update, alpha)
            if on_sublayer is not None:
                on_sublayer(x, update, new)
            return new

        x = (x + injection).to(self.stream_dtype)
        for index, block in enumerate(blocks):
            num_queries = num_read if index == len(blocks) - 1 else None
            mixed = attention(x.to(dtype), block, arch.num_heads, rotary, num_queries)
            x = step(x[:, :num_queries], mixed)
            x = step(x, swiglu(x.to(dtype), block))
        return x

    def calls(self) -> list[LevelCall]:
        """The level calls of one segment in order: H_cycles times (L_cycles L, one H)."""
        arch = self.arch
        calls = []
        for cycle in range(arch.H_cycles):
            last_cycle = cycle == arch.H_cycles - 1
            for step in range(arch.L_cycles):
                last_step = last_cycle and step == arch.L_cycles - 1
                visible = last_cycle if arch.grad_scope == "last_cycle" else last_step
                calls.append(LevelCall("L", visible, False))
            calls.append(LevelCall("H", last_cycle, last_cycle))
        return calls

    def visit(
        self,
        level: LevelName,
        blocks: tuple[BlockWeights, ...],
        z_H: Tensor,
        z_L: Tensor,
        embedding: Tensor,
        *,
        num_read: int | None = None,
        on_sublayer: OnSublayer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One call of a level: (z_H, z_L) with that level's state renewed.

        Args:
            level: The level.
            blocks: The weights this call uses; a probe gives each call its own copy.
            z_H: (B, S, D), stream dtype.
            z_L: (B, S, D), stream dtype.
            embedding: (B, S, D), compute dtype.
            num_read: As for ``level``.
            on_sublayer: As for ``level``.
        """
        alpha = (self.scales.L if level == "L" else self.scales.H).alpha
        state, injection = (z_L, z_H + embedding) if level == "L" else (z_H, z_L)
        new = self.level(
            blocks, alpha, state, injection, num_read=num_read, on_sublayer=on_sublayer
        )
        return (z_H, new) if level == "L" else (new, z_L)

    def segment(
        self,
        w: Weights,
        z_H: Tensor,
        z_L: Tensor,
        embedding: Tensor,
        *,
        num_read: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One segment: H_cycles times (L_cycles L steps, one H step).

        Gradient flows as ``arch.grad_scope`` says: through the very last L and H step, or
        through the whole last outer cycle.

        Args:
            w: Cast weights.
            z_H: (B, S, D), stream dtype.
            z_L: (B, S, D), stream dtype.
            embedding: (B, S, D), compute dtype.
            num_read: How many tokens of the new z_H will be read; None: all.

        Returns:
            The new z_H (its first ``num_read`` tokens) and z_L, still attached to the graph.
        """

        def gradient(visible: bool) -> AbstractContextManager[object]:
            # The surrounding mode where visible, so that evaluation stays without gradient.
            return nullcontext() if visible else torch.no_grad()

        for call in self.calls():
            blocks = w.L if call.level == "L" else w.H
            read = num_read if call.is_last else None
            with gradient(call.visible):
                z_H, z_L = self.visit(call.level, blocks, z_H, z_L, embedding, num_read=read)
        return z_H, z_L

    def q_values(self, w: Weights, z_H: Tensor) -> tuple[Tensor, Tensor]:
        """q_halt and q_continue logits, (B,) float32, read from the first token of z_H."""
        q = F.linear(z_H[:, 0].to(self.compute_dtype), w.q_head, w.q_head_bias)
        q = at_least_float32(q)
        return q[:, 0], q[:, 1]

    def heads(self, w: Weights, z_H: Tensor) -> Heads:
        """Logits over the cells and both q values.

        Args:
            w: Cast weights.
            z_H: (B, S, D), stream dtype.
        """
        cells = z_H[:, self.arch.num_puzzle_tokens :].to(self.compute_dtype)
        return Heads(F.linear(cells, w.lm_head), *self.q_values(w, z_H))
