"""The parts of a block: linear and embedding parameters, rms_norm, rotary positions, attention.

Modules here only hold parameters, under the published checkpoints' names.  The arithmetic is in
functions of explicit weight tensors, so that weights are cast to the compute dtype once per step
and a probe can give every visit of a block its own copy.

Dimension letters: B batch, S tokens, D hidden_size, N heads, Dh head size, I inner size, V words.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from hrm_deeploop.attention import mix

# Standard deviation of a unit normal truncated at +-2; dividing by it makes the truncated law's
# own standard deviation the requested one.
TRUNCATED_UNIT_STD = 0.87962566103423978


def trunc_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> Tensor:
    """Fills with a normal truncated at +-2 of the underlying law, rescaled to ``std`` (in place).

    Args:
        tensor: float32, any shape.
        std: Standard deviation of the truncated law, >= 0; 0 means zeros.
        generator: Source of randomness.

    **Source**: JAX's convention, used by HRM @42410da.
    """
    if std == 0:
        return tensor.zero_()
    sigma = std / TRUNCATED_UNIT_STD
    return nn.init.trunc_normal_(tensor, 0.0, sigma, -2 * sigma, 2 * sigma, generator=generator)


class Linear(nn.Module):
    """Weight (out, in) and optional bias (out,), float32; applied by ``F.linear``."""

    def __init__(self, in_size: int, out_size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_size, in_size))
        self.bias = nn.Parameter(torch.empty(out_size)) if bias else None


class Embedding(nn.Module):
    """Table (num_rows, D), float32."""

    def __init__(self, num_rows: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding_weight = nn.Parameter(torch.empty(num_rows, hidden_size))


class Attention(nn.Module):
    """Fused q | k | v projection (3D, D) and output projection (D, D)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.qkv_proj = Linear(hidden_size, 3 * hidden_size)
        self.o_proj = Linear(hidden_size, hidden_size)


class SwiGLU(nn.Module):
    """Fused gate | up projection (2I, D) and down projection (D, I)."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * inner_size)
        self.down_proj = Linear(inner_size, hidden_size)


class GELU(nn.Module):
    """Up projection (I, D) and down projection (D, I)."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.up_proj = Linear(hidden_size, inner_size)
        self.down_proj = Linear(inner_size, hidden_size)


class BlockWeights(NamedTuple):
    """One block's matrices in the compute dtype; of a GELU block ``gate_up`` is up alone."""

    qkv: Tensor
    o: Tensor
    gate_up: Tensor
    down: Tensor


class Block(nn.Module):
    """Parameters of one block: attention, then SwiGLU or GELU."""

    def __init__(
        self, hidden_size: int, inner_size: int, mlp: type[SwiGLU] | type[GELU] = SwiGLU
    ) -> None:
        super().__init__()
        self.self_attn = Attention(hidden_size)
        self.mlp = mlp(hidden_size, inner_size)

    @property
    def first_mlp_matrix(self) -> Tensor:
        """gate and up of SwiGLU, up of GELU."""
        first = self.mlp.gate_up_proj if isinstance(self.mlp, SwiGLU) else self.mlp.up_proj
        return first.weight

    def weights(self, dtype: torch.dtype) -> BlockWeights:
        """The matrices in ``dtype``, differentiable."""
        return BlockWeights(
            self.self_attn.qkv_proj.weight.to(dtype),
            self.self_attn.o_proj.weight.to(dtype),
            self.first_mlp_matrix.to(dtype),
            self.mlp.down_proj.weight.to(dtype),
        )

    def masters(self) -> BlockWeights:
        """The matrices as the optimizer holds them, without gradient."""
        return BlockWeights(*(m.detach() for m in self.weights(self.mlp.down_proj.weight.dtype)))

    @torch.no_grad()
    def scale_branches_(self, beta: float, ffn_gain: str) -> None:
        """Multiplies the residual-branch matrices by beta, once, right after initialisation.

        Attention: the value third of qkv, and o; q and k keep gain 1.  Feed-forward: ``all``
        gate, up and down; ``activated`` gate and down; ``linear`` up and down.  Of GELU up and
        down always.

        **Source**: DeepNorm's reading of "value, output and feed-forward", arXiv 2203.00555;
        neither paper speaks of SwiGLU, hence the three readings.
        """
        _, _, value = self.self_attn.qkv_proj.weight.chunk(3)
        feed_forward: tuple[Tensor, ...] = (self.first_mlp_matrix,)
        if isinstance(self.mlp, SwiGLU):
            gate, up = self.first_mlp_matrix.chunk(2)
            feed_forward = {"all": (gate, up), "activated": (gate,), "linear": (up,)}[ffn_gain]
        for matrix in (
            value,
            self.self_attn.o_proj.weight,
            *feed_forward,
            self.mlp.down_proj.weight,
        ):
            matrix.mul_(beta)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32, or as it is in float64, which probes and exactness tests compute in."""
    return x if x.dtype == torch.float64 else x.float()


def rms_norm(x: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x divided by its root mean square over the last axis, without gain.

    Args:
        x: (..., D), any float dtype; taken to float32 (float64 stays) first.
        eps: Added to the mean square.
        dtype: Dtype of the result.
    """
    x = at_least_float32(x)
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)).to(dtype)


def residual_norm(
    x: Tensor, update: Tensor, *, alpha: float, eps: float, sum_in_float32: bool
) -> Tensor:
    """rms_norm(alpha * x + update): the post-norm residual step with DeepLoop's skip.

    Args:
        x: Residual stream, (B, S, D), in the dtype it is stored in.
        update: Sublayer output, (B, S, D), compute dtype.
        alpha: Skip multiplier, > 0; exactly 1 leaves x untouched.
        eps: The norm's epsilon.
        sum_in_float32: Sum in float32; otherwise in the compute dtype.

    Returns:
        The new stream, (B, S, D), in the dtype of ``x``.

    **Source**: arXiv 2607.13491 v2.  Differs: summed in float32 by default, because a bfloat16
    sum loses most updates at p = 1/2 (the branch is a few thousandths of the stream).
    """
    sum_dtype = update.dtype
    if sum_in_float32:
        sum_dtype = torch.promote_types(sum_dtype, torch.float32)
    skip = x.to(sum_dtype)
    if alpha != 1:
        skip = alpha * skip
    return rms_norm(skip + update.to(sum_dtype), eps, x.dtype)


def rotary_table(num_tokens: int, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, (S, Dh/2) float32, of rotary positions in the rotate-half convention."""
    frequencies = theta ** -(torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles = torch.outer(torch.arange(num_tokens, dtype=torch.float32), frequencies)  # (S, Dh/2)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = at_least_float32(x).chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)


def attention(
    x: Tensor,
    w: BlockWeights,
    num_heads: int,
    rotary: tuple[Tensor, Tensor] | None,
    num_queries: int | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Softmax attention, scale 1/sqrt(Dh); full unless ``causal``.

    Args:
        x: (B, S, D), compute dtype.
        w: The block's matrices, same dtype.
        num_heads: N.
        rotary: cos and sin, (S, Dh/2) float32, applied to q and k; None: no rotation.
        num_queries: Compute the result of the first Q tokens only; None: of all.
        causal: No token sees later ones; ``num_queries`` must be None.

    Returns:
        (B, Q, D), compute dtype.
    """
    heads = "B S (three N Dh) -> three B N S Dh"
    if num_queries is None:
        q, k, v = rearrange(F.linear(x, w.qkv), heads, three=3, N=num_heads)
    else:
        d = x.shape[-1]
        (q,) = rearrange(F.linear(x[:, :num_queries], w.qkv[:d]), heads, three=1, N=num_heads)
        k, v = rearrange(F.linear(x, w.qkv[d:]), heads, three=2, N=num_heads)
    if rotary is not None:
        cos, sin = rotary
        q, k = _rotate(q, cos[: q.shape[2]], sin[: q.shape[2]]), _rotate(k, cos, sin)
    mixed = mix(q, k, v, is_causal=causal)  # (B, N, Q, Dh)
    return F.linear(rearrange(mixed, "B N Q Dh -> B Q (N Dh)"), w.o)


def gelu(x: Tensor, w: BlockWeights) -> Tensor:
    """down(gelu(up(x))), the exact GELU; (B, S, D) to (B, S, D), compute dtype."""
    return F.linear(F.gelu(F.linear(x, w.gate_up)), w.down)


def swiglu(x: Tensor, w: BlockWeights) -> Tensor:
    """down(silu(gate(x)) * up(x)); (B, S, D) to (B, S, D), compute dtype."""
    gate, up = F.linear(x, w.gate_up).chunk(2, dim=-1)  # (B, S, I) each
    return F.linear(F.silu(gate) * up, w.down)
