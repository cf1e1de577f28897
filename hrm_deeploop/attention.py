"""How softmax(q k^T / sqrt(Dh)) v is computed: the kernels, and which one where.

All compute the same; ``docs/LOG.md`` has the measured tables that the choice follows.
"""

import math
from enum import StrEnum
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PLAIN_MAX_TOKENS = {torch.bfloat16: 256, torch.float32: 64}  # docs/LOG.md, measured
BLOCK_QUERIES = 512
MAX_KEPT_BYTES = 256 << 20  # of one call's probabilities, which its backward pass needs


def has_only_avx512_bf16() -> bool:
    """Whether the processor has AVX512-BF16 and no AMX; False where torch cannot tell."""
    abilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return abilities.get("avx512_bf16", False) and not abilities.get("amx_bf16", False)


ONLY_AVX512_BF16 = has_only_avx512_bf16()  # a constant, so that compiled code can read it


class Kernel(StrEnum):
    """The kernels, as provenance names them."""

    PLAIN = "plain products"
    BLOCKED = "plain products by heads; with gradient whole, or fused where they are large"
    FUSED = "scaled_dot_product_attention"


def choose_kernel(
    num_tokens: int, dtype: torch.dtype, device_type: str, is_causal: bool = False
) -> Kernel:
    """The fastest kernel for a sequence.

    On a CPU the fused kernel's backward is several times slower for short sequences, and the
    plain form is slower and larger for long ones.  But where bfloat16 products are fast and the
    fused kernel makes no use of it (AVX512-BF16 without AMX), plain products win at any length:
    a few heads at a time, whose scores stay in the cache, or with gradient all at once, which
    saves the backward pass from computing them again.
    """
    if device_type != "cpu":
        return Kernel.FUSED
    if num_tokens <= PLAIN_MAX_TOKENS.get(dtype, 0):
        return Kernel.PLAIN
    by_heads = dtype == torch.bfloat16 and ONLY_AVX512_BF16 and not is_causal
    return Kernel.BLOCKED if by_heads else Kernel.FUSED


def mix(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(Dh)) v by the kernel of choice.

    Args:
        q: (B, N, Q, Dh).
        k: (B, N, S, Dh), same dtype.
        v: (B, N, S, Dh), same dtype.
        is_causal: No token sees later ones.

    Returns:
        (B, N, Q, Dh), same dtype.
    """
    kernel = choose_kernel(k.shape[2], k.dtype, k.device.type, is_causal)
    if kernel is Kernel.PLAIN:
        return plain_attention(q, k, v, is_causal)
    if kernel is Kernel.BLOCKED:
        # Where ``sdpa_kernel(SDPBackend.MATH)`` asks for it, a forward-mode derivative is wanted.
        differentiates = torch.is_grad_enabled() or not (
            torch.compiler.is_compiling() or torch.backends.cuda.flash_sdp_enabled()
        )
        if not differentiates:
            return blocked_attention(q, k, v)
        num_probabilities = math.prod(q.shape[:-1]) * k.shape[2]
        if num_probabilities * q.element_size() <= MAX_KEPT_BYTES:
            return _products(q, _scaled(k).mT, v)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Two products and a softmax, taken in float32; shapes as ``mix``."""
    scores = (q @ k.mT).to(torch.promote_types(q.dtype, torch.float32))  # (B, N, Q, S)
    scores = scores * (1 / math.sqrt(q.shape[-1]))
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(-1).to(v.dtype) @ v


def _scaled(k: Tensor) -> Tensor:
    return k * (1 / math.sqrt(k.shape[-1]))


def _products(q: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """softmax(q keys) v of scaled and transposed keys, (..., Dh, S)."""
    return (q @ keys).softmax(-1) @ v


@torch.library.custom_op("hrm_deeploop::blocked_attention", mutates_args=())
def blocked_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain products of one head per thread and some queries at a time; shapes as ``mix``.

    The softmax is taken in float32.  Scaled keys are rounded once more than in ``plain_attention``
    unless the head size is a power of 4: errors up to a tenth larger.  One node of a compiled
    graph, instead of hundreds of products; without derivatives.
    """
    batch = len(q)
    q, v = q.flatten(0, 1), v.flatten(0, 1)
    keys = _scaled(k).flatten(0, 1).mT.contiguous()  # (B N, Dh, S)
    num_heads = torch.get_num_threads()  # batched products give each thread a head
    rows = []
    for own_q, own_keys, own_v in zip(*(x.split(num_heads) for x in (q, keys, v)), strict=True):
        mixed = [
            _products(queries, own_keys, own_v) for queries in own_q.split(BLOCK_QUERIES, dim=1)
        ]
        rows.append(torch.cat(mixed, dim=1))
    return torch.cat(rows).unflatten(0, (batch, -1))


@blocked_attention.register_fake
def _describe(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.shape)
