"""Initial laws, what alpha and beta touch, dtypes, gradient scope."""

import math

import pytest
import torch
from tiny_reasoners import explicit, make_model, randn, random_batch, tiny_arch

from hrm_deeploop import attention, layers
from hrm_deeploop.config import ArchConfig, ResidualConfig
from hrm_deeploop.layers import (
    TRUNCATED_UNIT_STD,
    residual_norm,
    rms_norm,
    rotary_table,
    trunc_normal_,
)
from hrm_deeploop.model import HRM
from hrm_deeploop.scaling import resolve

VANILLA = {"alpha": 1.0, "beta": 1.0}


def test_trunc_normal_has_the_requested_deviation_and_cut() -> None:
    x = trunc_normal_(torch.empty(400_000), 0.5, torch.Generator().manual_seed(0))
    assert x.std().item() == pytest.approx(0.5, rel=5e-3)
    assert x.abs().max().item() <= 2 * 0.5 / TRUNCATED_UNIT_STD
    assert x.abs().max().item() > 0.99 * 2 * 0.5 / TRUNCATED_UNIT_STD
    assert torch.equal(trunc_normal_(x, 0.0, torch.Generator()), torch.zeros_like(x))


def test_initial_laws() -> None:
    model = make_model(tiny_arch(hidden_size=128, pos_encodings="learned"))
    state = dict(model.named_parameters())
    for name, fan_in in {
        "embed_tokens.embedding_weight": 128,
        "embed_pos.embedding_weight": 128,
        "lm_head.weight": 128,
        "H_level.layers.1.self_attn.qkv_proj.weight": 128,
        "L_level.layers.0.mlp.down_proj.weight": 256,
    }.items():
        assert state[name].std().item() == pytest.approx(1 / math.sqrt(fan_in), rel=0.06), name
    assert torch.equal(state["q_head.weight"], torch.zeros(2, 128))
    assert torch.equal(state["q_head.bias"], torch.full((2,), -5.0))
    assert model.H_init.std().item() == pytest.approx(1, rel=0.2)


def test_mlp_size_rounds_up_to_256() -> None:
    assert ArchConfig().mlp_size == 1536  # 4 * 512 * 2 / 3 = 1365.3
    assert ArchConfig(hidden_size=96, num_heads=2).mlp_size == 256  # exactly 256
    assert ArchConfig(hidden_size=128, num_heads=2).mlp_size == 512  # 341.3


def test_published_parameter_count() -> None:
    model = HRM(ArchConfig(), resolve(ResidualConfig(), ArchConfig()), vocab_size=12, seq_len=900)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(27.3e6, rel=2e-3)


@pytest.mark.parametrize(
    ("ffn_gain", "gate", "up"), [("activated", 0.25, 1), ("all", 0.25, 0.25), ("linear", 1, 0.25)]
)
def test_beta_scales_exactly_the_named_rows(ffn_gain: str, gate: float, up: float) -> None:
    plain = make_model()
    residual = ResidualConfig(preset="custom", ffn_gain=ffn_gain, H=_level(0.25), L=_level(1.0))
    scaled = make_model(residual=residual)
    d, inner = 16, plain.arch.mlp_size
    for (name, a), (_, b) in zip(plain.named_parameters(), scaled.named_parameters(), strict=True):
        factor = torch.ones(a.shape[0], 1)
        if name.startswith("H_level"):
            if "qkv" in name:
                factor[2 * d :] = 0.25  # value third; q and k keep gain 1
            elif "gate_up" in name:
                factor[:inner], factor[inner:] = gate, up
            else:
                factor[:] = 0.25  # o and down
        factor = factor if a.dim() == 2 else factor.squeeze(1)
        assert torch.equal(a * factor, b), name


def _level(beta: float):
    return explicit(H={"alpha": 1.0, "beta": beta}).H


def test_beta_is_not_applied_again_when_weights_are_loaded() -> None:
    residual = ResidualConfig(preset="deeploop")
    trained = make_model(residual=residual)
    restored = make_model(residual=residual, seed=1)
    restored.load_state_dict(trained.state_dict())
    for key, value in trained.state_dict().items():
        assert torch.equal(value, restored.state_dict()[key])


def test_alpha_stands_on_the_skip_inside_the_norm() -> None:
    x, update = randn(2, 3, 8, seed=1), randn(2, 3, 8, seed=2)
    actual = residual_norm(x, update, alpha=3.0, eps=1e-5, sum_in_float32=True)
    total = 3.0 * x + update
    expected = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("swapped", [False, True])
def test_each_level_has_its_own_alpha(swapped: bool) -> None:
    """A plain rewrite of one segment: L steps use alpha_L, the H step alpha_H."""
    alpha = {"H": 1.5, "L": 4.0}
    levels = {name: {"alpha": a, "beta": 1.0} for name, a in alpha.items()}
    model = make_model(residual=explicit(**levels))
    w = model.weights()
    batch = random_batch(2, 0)
    embedding = model.embed(w, batch.inputs, randn(2, 16, seed=3))
    z_H, z_L = (randn(*embedding.shape, seed=seed) for seed in (91, 92))
    new_H, new_L = model.segment(w, z_H, z_L, embedding)

    used = {"H": alpha["L"], "L": alpha["H"]} if swapped else alpha
    for _ in range(model.arch.H_cycles):
        for _ in range(model.arch.L_cycles):
            z_L = model.level(w.L, used["L"], z_L, z_H + embedding)
        z_H = model.level(w.H, used["H"], z_H, z_L)
    assert torch.equal(new_H, z_H) != swapped
    assert torch.equal(new_L, z_L) != swapped


def test_vanilla_is_bitwise_the_unscaled_model() -> None:
    """alpha = beta = 1 leaves initial weights and outputs untouched, to the last bit."""
    plain, ones = make_model(), make_model(residual=explicit(H=VANILLA, L=VANILLA))
    for key, value in plain.state_dict().items():
        assert torch.equal(value, ones.state_dict()[key])
    x, update = randn(2, 3, 8, seed=4), randn(2, 3, 8, seed=5)
    unscaled = rms_norm(x + update, 1e-5, torch.float32)
    assert torch.equal(residual_norm(x, update, alpha=1.0, eps=1e-5, sum_in_float32=True), unscaled)


def test_a_batch_row_does_not_influence_another() -> None:
    model = make_model()
    w = model.weights()
    batch = random_batch(3, 0)
    rows = randn(3, 16, seed=6)
    embedding = model.embed(w, batch.inputs, rows)
    z = randn(*embedding.shape, seed=93)
    z_H, _ = model.segment(w, z, z, embedding)
    changed = embedding.clone()
    changed[1] += 1
    other, _ = model.segment(w, z, z, changed)
    assert torch.equal(z_H[0], other[0])
    assert torch.equal(z_H[2], other[2])
    assert not torch.equal(z_H[1], other[1])


def _visits_with_gradient(grad_scope: str) -> dict[str, int]:
    model = make_model(tiny_arch(grad_scope=grad_scope))
    w = model.weights()
    visits = {"H": 0, "L": 0}
    level = model.level

    def counting(blocks, alpha, x, injection, **options):
        name = "H" if blocks is w.H else "L"
        visits[name] += torch.is_grad_enabled()
        return level(blocks, alpha, x, injection, **options)

    model.level = counting  # type: ignore[method-assign]
    z = randn(1, model.num_tokens, 16, seed=7)
    model.segment(w, z, z, z)
    return visits


def test_gradient_scope() -> None:
    assert _visits_with_gradient("last_step") == {"H": 1, "L": 1}
    assert _visits_with_gradient("last_cycle") == {"H": 1, "L": 3}


@pytest.mark.parametrize("carry_dtype", ["compute", "float32"])
def test_bfloat16_dtypes_and_closeness(carry_dtype: str) -> None:
    reference = make_model(residual=ResidualConfig(preset="deeploop"))
    arch = tiny_arch(forward_dtype="bfloat16", carry_dtype=carry_dtype)
    model = make_model(arch, ResidualConfig(preset="deeploop"))
    model.load_state_dict(reference.state_dict())
    batch, rows = random_batch(2, 0), randn(2, 16, seed=8)
    outputs = []
    for m in (reference, model):
        w = m.weights()
        z = torch.ones(2, m.num_tokens, 16, dtype=m.stream_dtype)
        z_H, _ = m.segment(w, z, z, m.embed(w, batch.inputs, rows))
        outputs.append((z_H, m.heads(w, z_H)))
    (z_H, heads), (z_H_16, heads_16) = outputs
    assert z_H_16.dtype == (torch.bfloat16 if carry_dtype == "compute" else torch.float32)
    assert heads_16.logits.dtype == torch.bfloat16
    assert heads_16.q_halt_logits.dtype == torch.float32
    torch.testing.assert_close(z_H_16.float(), z_H, atol=0.1, rtol=0)
    torch.testing.assert_close(heads_16.logits.float(), heads.logits, atol=0.1, rtol=0)


def test_float32_sum_keeps_updates_that_bfloat16_loses() -> None:
    x = torch.full((1, 1, 8), 1.0, dtype=torch.bfloat16)
    update = torch.full((1, 1, 8), 2.0**-8, dtype=torch.bfloat16)
    update[..., 0] = 0
    kept = residual_norm(x.float(), update, alpha=4.0, eps=1e-5, sum_in_float32=True)
    lost = residual_norm(x, update, alpha=4.0, eps=1e-5, sum_in_float32=False)
    assert len(kept.unique()) == 2
    assert len(lost.unique()) == 1


def test_puzzle_row_stands_in_front_with_zeros_behind() -> None:
    model = make_model(tiny_arch(puzzle_emb_ndim=24, puzzle_emb_len=3))
    w = model.weights()
    rows = torch.arange(1, 25, dtype=torch.float32).expand(2, 24)
    embedding = model.embed(w, random_batch(2, 0).inputs, rows) / 4  # sqrt(16)
    front = embedding[:, :3].flatten(1)
    torch.testing.assert_close(front[:, :24], rows)
    assert torch.equal(front[:, 24:], torch.zeros(2, 24))


def test_learned_positions_are_averaged_in() -> None:
    model = make_model(tiny_arch(pos_encodings="learned"))
    w = model.weights()
    embedding = model.embed(w, torch.zeros(1, 9, dtype=torch.int64), torch.zeros(1, 16))
    expected = (w.tokens[0] + w.positions[1]) / math.sqrt(2) * 4
    torch.testing.assert_close(embedding[0, 1], expected)


def test_reading_the_first_token_only_changes_nothing_in_it() -> None:
    model = make_model(residual=ResidualConfig(preset="deeploop"))
    w = model.weights()
    z = randn(2, model.num_tokens, 16, seed=9)
    whole_H, whole_L = model.segment(w, z, z, z)
    first_H, first_L = model.segment(w, z, z, z, num_read=1)
    assert first_H.shape == (2, 1, 16)
    torch.testing.assert_close(first_H, whole_H[:, :1], atol=1e-5, rtol=0)
    assert torch.equal(first_L, whole_L)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_and_fused_attention_agree(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 16, generator=generator).to(dtype)
    w = make_model().weights().L[0]
    w = type(w)(*(matrix.detach().to(dtype) for matrix in w))
    rotary = rotary_table(7, 8, 10000.0)
    outputs = []
    for most in (0, 7):
        monkeypatch.setattr(attention, "PLAIN_MAX_TOKENS", {dtype: most})
        assert (attention.choose_kernel(7, dtype, "cpu") is attention.Kernel.PLAIN) == (most == 7)
        outputs.append(layers.attention(x, w, 2, rotary))
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(*outputs, atol=tolerance, rtol=0)
