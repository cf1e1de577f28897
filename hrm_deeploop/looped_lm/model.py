"""A decoder-only language model whose K blocks run R rounds.

Embedding, norm, R times the K blocks, norm before the head where the stream is not normalised
already; causal attention with rotary positions, one table for input and output, norms without
gain, no biases.

**Source**: arXiv 2607.13491 v2 (sandwich and pre-norm form, tied embeddings, input norm).
Differs: norms have no gain; MLP type, heads and initial spread, which are not published, are
settings.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from hrm_deeploop.checkpoint import Checkpoint, copy_weights
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.ema import split_averages
from hrm_deeploop.layers import (
    GELU,
    Block,
    BlockWeights,
    Embedding,
    SwiGLU,
    at_least_float32,
    attention,
    gelu,
    residual_norm,
    rms_norm,
    rotary_table,
    swiglu,
    trunc_normal_,
)
from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.scales import resolve_loop
from hrm_deeploop.model import DTYPES, OnSublayer
from hrm_deeploop.settings import from_dict

NO_TARGET = -100

RunBlock = Callable[[Tensor, BlockWeights], Tensor]


class Weights(NamedTuple):
    """All weights; ``head`` and ``blocks`` in the compute dtype, cast once per step.

    ``tokens`` is the same table as ``head`` as the optimizer holds it: a look-up in bfloat16
    would add up the gradients of frequent tokens in bfloat16.
    """

    tokens: Tensor
    head: Tensor
    blocks: tuple[BlockWeights, ...]


class LoopedGPT(nn.Module):
    """The model's parameters and arithmetic.

    Args:
        config: Sizes, loop and arm.
        vocab_size: V.

    A new model's weights are undefined until ``init_weights`` or ``load_state_dict``.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: LmConfig, vocab_size: int) -> None:
        super().__init__()
        d = config.hidden_size
        self.config = config
        self.scale = resolve_loop(config)
        self.vocab_size = vocab_size
        self.compute_dtype = DTYPES[config.forward_dtype]
        self.stream_dtype = torch.float32
        if config.stream_dtype == "compute":
            self.stream_dtype = self.compute_dtype
        mlp = GELU if config.mlp == "gelu" else SwiGLU
        self.embed_tokens = Embedding(vocab_size, d)
        self.layers = nn.ModuleList(
            Block(d, config.mlp_size, mlp) for _ in range(config.num_blocks)
        )
        cos, sin = rotary_table(config.context, d // config.num_heads, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._run_block: RunBlock = self.block

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "LoopedGPT":
        """The model of a checkpoint, with its averaged weights where it has them."""
        config = from_dict(TrainConfig, checkpoint.meta["config"])
        model = cls(config.lm, checkpoint.meta["vocab_size"])
        own, averages = split_averages(checkpoint.tensors)
        copy_weights({**own, **averages}, model.state_dict())
        return model

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draws the initial weights, then applies beta: the only place that beta ever acts.

        The draws depend on neither arm nor rounds, so arms with one seed start from the same
        weights up to beta.

        Args:
            generator: CPU generator, seeded with the run seed.
        """
        table = self.embed_tokens.embedding_weight
        for parameter in self.parameters():  # table (V, D), matrices (out, in)
            std = self.config.init_std or 1 / math.sqrt(parameter.shape[1])
            if parameter is table:
                std = self.config.embedding_std
            trunc_normal_(parameter, std, generator)
        if self.scale.beta != 1:
            for block in self.layers:
                cast(Block, block).scale_branches_(self.scale.beta, self.config.ffn_gain)

    def compile_blocks(self, enabled: bool = True) -> None:
        """Computes every block with one compiled function, which all visits share; or plainly."""
        self._run_block = self.block
        if enabled:
            self._run_block = torch.compile(self.block, dynamic=False, fullgraph=True)

    def weights(self) -> Weights:
        """Casts the matrices to the compute dtype; differentiable."""
        dtype = self.compute_dtype
        table = self.embed_tokens.embedding_weight
        blocks = tuple(cast(Block, block).weights(dtype) for block in self.layers)
        return Weights(table, table.to(dtype), blocks)

    def embed(self, w: Weights, tokens: Tensor) -> Tensor:
        """The stream before the loop.

        Args:
            w: Cast weights.
            tokens: (B, S) integers, S at most ``context``.

        Returns:
            (B, S, D), stream dtype.
        """
        x = F.embedding(tokens, w.tokens)  # (B, S, D)
        if self.config.input_norm:
            return rms_norm(x, self.config.rms_norm_eps, self.stream_dtype)
        return x.to(self.stream_dtype)

    def block(self, x: Tensor, w: BlockWeights, on_sublayer: OnSublayer | None = None) -> Tensor:
        """One visit of a block; (B, S, D) to (B, S, D), stream dtype.

        ``on_sublayer`` is told what attention and feed-forward did.
        """
        num_tokens = x.shape[1]
        rotary = (self.cos[:num_tokens], self.sin[:num_tokens])
        mlp = gelu if self.config.mlp == "gelu" else swiglu

        def step(x: Tensor, update: Tensor) -> Tensor:
            new = self.residual_step(x, update)
            if on_sublayer is not None:
                on_sublayer(x, update, new)
            return new

        mixed = attention(self.branch_input(x), w, self.config.num_heads, rotary, causal=True)
        x = step(x, mixed)
        return step(x, mlp(self.branch_input(x), w))

    def branch_input(self, x: Tensor) -> Tensor:
        """Norm(x), or x with ``inner_norm`` off; compute dtype."""
        if self.config.inner_norm:
            return rms_norm(x, self.config.rms_norm_eps, self.compute_dtype)
        return x.to(self.compute_dtype)

    def residual_step(self, x: Tensor, update: Tensor) -> Tensor:
        """Norm(alpha x + update) or x + eps update, summed in float32; (B, S, D)."""
        if self.config.is_post_norm:
            return residual_norm(
                x,
                update,
                alpha=self.scale.alpha,
                eps=self.config.rms_norm_eps,
                sum_in_float32=True,
            )
        branch = at_least_float32(update)
        if self.scale.eps != 1:
            branch = self.scale.eps * branch
        return (at_least_float32(x) + branch).to(x.dtype)

    def loop(self, w: Weights, x: Tensor) -> Tensor:
        """R rounds of the K blocks; (B, S, D) to (B, S, D), stream dtype."""
        for _ in range(self.config.rounds):
            x = self.round(x, w.blocks, self._run_block)
        return x

    def round(self, x: Tensor, blocks: tuple[BlockWeights, ...], run_block: RunBlock) -> Tensor:
        """One round.

        Args:
            x: (B, S, D), stream dtype.
            blocks: The weights this round uses; a probe gives each round its own copy.
            run_block: ``block``, or the same compiled.

        Returns:
            (B, S, D), stream dtype.
        """
        recompute = self.config.activation_checkpointing and torch.is_grad_enabled()
        for block in blocks:
            if recompute:
                x = recomputed(run_block, x, block, use_reentrant=False, preserve_rng_state=False)
            else:
                x = run_block(x, block)
        return x

    def logits(self, w: Weights, x: Tensor) -> Tensor:
        """Next-token logits of the stream after the loop, (B, S, V), compute dtype."""
        if not self.config.is_post_norm:
            x = rms_norm(x, self.config.rms_norm_eps, self.compute_dtype)
        return F.linear(x.to(self.compute_dtype), w.head)

    def forward(self, tokens: Tensor) -> Tensor:
        """Next-token logits.

        Args:
            tokens: (B, S) integers in 0..V-1, S at most ``context``.

        Returns:
            (B, S, V), compute dtype.
        """
        w = self.weights()
        return self.logits(w, self.loop(w, self.embed(w, tokens)))

    def token_losses(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy per token.

        Args:
            tokens: (B, S) integers.
            targets: (B, S) int64, the token after each; ``NO_TARGET`` where there is none.

        Returns:
            (B, S) float32 nats, 0 without a target.
        """
        return token_losses(self.forward(tokens), targets)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy per token, at least in float32.

    Args:
        logits: (B, S, V).
        targets: (B, S) int64, ``NO_TARGET`` where there is none.

    Returns:
        (B, S) nats, 0 without a target.
    """
    flat = at_least_float32(logits).flatten(0, 1)  # (B S, V)
    losses = F.cross_entropy(flat, targets.flatten(), ignore_index=NO_TARGET, reduction="none")
    return losses.view_as(targets)


@torch.no_grad()
def generate(
    model: LoopedGPT,
    prompt: Tensor,
    num_tokens: int,
    *,
    temperature: float,
    top_k: int | None,
    generator: torch.Generator,
) -> Tensor:
    """Continues a prompt, one forward pass over the last ``context`` tokens per new token.

    Args:
        model: The model.
        prompt: (S,) int64, one token or more, on the model's device.
        num_tokens: Tokens to add.
        temperature: Divides the logits; 0 takes the likeliest token.
        top_k: Draws among this many of the likeliest; None: all.
        generator: Source of randomness, on the CPU.

    Returns:
        (S + num_tokens,) int64.
    """
    tokens, w = prompt, model.weights()
    for _ in range(num_tokens):
        seen = tokens[-model.config.context :].unsqueeze(0)
        last = model.loop(w, model.embed(w, seen))[:, -1:]
        logits = at_least_float32(model.logits(w, last)).flatten().cpu()  # (V,)
        if temperature == 0:
            new = logits.argmax().view(1)
        else:
            if top_k is not None and top_k < len(logits):
                logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -math.inf)
            new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        tokens = torch.cat((tokens, new.to(tokens.device)))
    return tokens
