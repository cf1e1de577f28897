"""A plain GPT of torch's own modules: what the looped model is compared with.

Pre-norm, gain-less RMSNorm, rotary positions, causal attention, GELU, one table for input and
output; every block has its own weights.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, hidden_size: int, num_heads: int, inner_size: int, eps: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.RMSNorm(hidden_size, eps=eps, elementwise_affine=False)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.o = nn.Linear(hidden_size, hidden_size, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, inner_size, bias=False),
            nn.GELU(),
            nn.Linear(inner_size, hidden_size, bias=False),
        )

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """(B, S, D) to (B, S, D); ``rotation`` is (S, Dh/2) complex."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(
            rotated(q, rotation), rotated(k, rotation), v, is_causal=True
        )
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm(x))


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """Turns pairs of features (i, i + Dh/2) of (B, N, S, Dh) as complex numbers."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.complex(first, second) * rotation
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


class PlainGPT(nn.Module):
    """Embedding, norm, blocks, norm, the embedding again as head."""

    rotation: Tensor

    def __init__(
        self,
        *,
        num_blocks: int,
        hidden_size: int,
        num_heads: int,
        inner_size: int,
        context: int,
        vocab_size: int,
        theta: float,
        eps: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.blocks = nn.ModuleList(
            PlainBlock(hidden_size, num_heads, inner_size, eps) for _ in range(num_blocks)
        )
        self.norm = nn.RMSNorm(hidden_size, eps=eps, elementwise_affine=False)
        half = hidden_size // num_heads // 2
        speed = theta ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(context), speed)  # (S, Dh/2)
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, S, V) of (B, S) ids."""
        x = self.norm(self.embedding(tokens))
        for block in self.blocks:
            x = cast(PlainBlock, block)(x, self.rotation[: tokens.shape[1]])
        return F.linear(self.norm(x), self.embedding.weight)
