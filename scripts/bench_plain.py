"""The published formulation of a training step, written plainly: what ``bench.py`` compares with.

Same arithmetic as ``act.train_segment``, without its economies: every call casts its weights,
rotation and norms are passes of their own, attention is always the fused kernel, the look-ahead
computes every token and all heads.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hrm_deeploop.act import ActOutput, Carry
from hrm_deeploop.layers import Block, rms_norm
from hrm_deeploop.losses import act_losses
from hrm_deeploop.model import HRM


def plain_train_segment(
    model: HRM, carry: Carry, puzzle_rows: Tensor, min_steps: Tensor
) -> ActOutput:
    """As ``act.train_segment``, for HRM with rotary positions and alpha 1."""
    arch = model.arch
    z_H, z_L, logits, q = _inner(model, carry, puzzle_rows)
    steps = carry.steps + 1
    last = steps >= arch.halt_max_steps
    with torch.no_grad():
        halted = (last | (q[:, 0] > q[:, 1])) & (steps >= min_steps)
        after = Carry(z_H=z_H, z_L=z_L, steps=steps, halted=halted, current=carry.current)
        next_q = _inner(model, after, puzzle_rows)[3]
        target = torch.where(last, next_q[:, 0], next_q.max(-1).values).sigmoid()
    losses = act_losses(
        arch.loss,
        logits=logits,
        labels=carry.current.labels,
        q_halt_logits=q[:, 0],
        q_continue_logits=q[:, 1],
        target_q_continue=target,
        halted=halted,
        steps=steps,
    )
    return ActOutput(after, losses, logits, q[:, 0], q[:, 1], target)


def _inner(model: HRM, carry: Carry, puzzle_rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One segment: detached states, logits and both q values."""
    arch, dtype = model.arch, model.compute_dtype
    words = F.embedding(carry.current.inputs, model.embed_tokens.embedding_weight.to(dtype))
    puzzle = puzzle_rows.to(dtype).view(len(puzzle_rows), -1, arch.hidden_size)
    embedding = arch.hidden_size**0.5 * torch.cat((puzzle, words), dim=1)
    z_H, z_L = carry.z_H, carry.z_L
    with torch.no_grad():
        for cycle in range(arch.H_cycles):
            for step in range(arch.L_cycles):
                if (cycle, step) != (arch.H_cycles - 1, arch.L_cycles - 1):
                    z_L = _level(model, model.L_level.blocks(), z_L, z_H + embedding)
            if cycle < arch.H_cycles - 1:
                z_H = _level(model, model.H_level.blocks(), z_H, z_L)
    z_L = _level(model, model.L_level.blocks(), z_L, z_H + embedding)
    z_H = _level(model, model.H_level.blocks(), z_H, z_L)
    logits = F.linear(z_H, model.lm_head.weight.to(dtype))[:, arch.num_puzzle_tokens :]
    assert model.q_head.bias is not None
    q = F.linear(z_H[:, 0], model.q_head.weight.to(dtype), model.q_head.bias.to(dtype))
    return z_H.detach(), z_L.detach(), logits, q.float()


def _level(model: HRM, blocks: list[Block], x: Tensor, injection: Tensor) -> Tensor:
    x = x + injection
    dtype, eps = model.compute_dtype, model.arch.rms_norm_eps
    for block in blocks:
        x = rms_norm(x + _attention(model, block, x), eps, dtype)
        gate, up = F.linear(x, block.mlp.gate_up_proj.weight.to(dtype)).chunk(2, dim=-1)
        mixed = F.linear(F.silu(gate) * up, block.mlp.down_proj.weight.to(dtype))
        x = rms_norm(x + mixed, eps, dtype)
    return x


def _attention(model: HRM, block: Block, x: Tensor) -> Tensor:
    num_heads, dtype = model.arch.num_heads, model.compute_dtype
    qkv = F.linear(x, block.self_attn.qkv_proj.weight.to(dtype))
    qkv = qkv.unflatten(-1, (3, num_heads, -1))  # (B, S, 3, N, Dh)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(_rotate(model, q), _rotate(model, k), v)
    return F.linear(mixed.transpose(1, 2).flatten(2), block.self_attn.o_proj.weight.to(dtype))


def _rotate(model: HRM, x: Tensor) -> Tensor:
    cos, sin = (torch.cat((table, table), dim=-1) for table in (model.cos, model.sin))
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
