"""The looped GPT against torch's own modules, untied blocks, and the papers' tables."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import torch

from hrm_deeploop.attention import plain_attention
from hrm_deeploop.layers import Block
from hrm_deeploop.looped_lm.config import Arm, LmConfig
from hrm_deeploop.looped_lm.model import NO_TARGET, LoopedGPT, generate
from hrm_deeploop.looped_lm.scales import resolve_loop
from hrm_deeploop.settings import from_dict

VOCAB = 23
TINY = LmConfig(
    num_blocks=2,
    hidden_size=16,
    num_heads=2,
    context=12,
    forward_dtype="float32",
    init_std=0.3,
    embedding_std=0.3,
)
ALL_ARMS: dict[str, Any] = {
    "base": {},
    "deeploop": {},
    "deepnorm": {},
    "custom": {"p": 0.4},
    "eps_loop": {},
    "eps_sqrt": {},
}


def tiny(arm: str = "base", **departures: Any) -> LmConfig:
    return replace(TINY, arm=cast(Arm, arm), **{**ALL_ARMS[arm], **departures})


def make(config: LmConfig, seed: int = 0) -> LoopedGPT:
    model = LoopedGPT(config, VOCAB)
    model.init_weights(torch.Generator().manual_seed(seed))
    return model


def some_tokens(batch_size: int = 3, length: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(VOCAB, (batch_size, length), generator=generator)


def load_script(name: str) -> ModuleType:
    path = Path(__file__).parents[3] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_twin(model: LoopedGPT) -> torch.nn.Module:
    """A GPT of torch's modules with the same weights."""
    config = model.config
    plain = load_script("plain_gpt").PlainGPT(
        num_blocks=config.num_blocks,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        inner_size=config.mlp_size,
        context=config.context,
        vocab_size=VOCAB,
        theta=config.rope_theta,
        eps=config.rms_norm_eps,
    )
    with torch.no_grad():
        plain.embedding.weight.copy_(model.embed_tokens.embedding_weight)
        for theirs, ours in zip(plain.blocks, model.layers, strict=True):
            w = cast(Block, ours).masters()
            theirs.qkv.weight.copy_(w.qkv)
            theirs.o.weight.copy_(w.o)
            theirs.mlp[0].weight.copy_(w.gate_up)
            theirs.mlp[2].weight.copy_(w.down)
    return plain


def test_one_round_of_base_is_a_plain_gpt() -> None:
    model = make(tiny())
    tokens = some_tokens()
    expected = plain_twin(model)(tokens)
    assert expected.std() > 0.5
    torch.testing.assert_close(model(tokens), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("arm", ["base", "deeploop", "custom"])
@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_rounds_are_untied_blocks_with_copied_weights(arm: str, mlp: str) -> None:
    rounds, num_blocks = 3, TINY.num_blocks
    tied = make(tiny(arm, rounds=rounds, mlp=mlp))
    untied = make(tiny(arm, num_blocks=rounds * num_blocks, mlp=mlp))
    with torch.no_grad():
        untied.embed_tokens.embedding_weight.copy_(tied.embed_tokens.embedding_weight)
        for index, block in enumerate(untied.layers):
            block.load_state_dict(tied.layers[index % num_blocks].state_dict())
    tokens = some_tokens()
    losses = []
    for model in (tied, untied):
        loss = model.token_losses(tokens[:, :-1], tokens[:, 1:])
        loss.mean().backward()
        losses.append(loss)
    torch.testing.assert_close(losses[0], losses[1], atol=1e-6, rtol=0)
    for index, block in enumerate(tied.layers):
        copies = [dict(untied.layers[r * num_blocks + index].named_parameters()) for r in range(3)]
        for name, parameter in block.named_parameters():
            summed = sum(cast(torch.Tensor, copy[name].grad) for copy in copies)
            assert parameter.grad is not None
            assert parameter.grad.norm() > 1e-3
            torch.testing.assert_close(parameter.grad, summed, atol=1e-6, rtol=1e-5)
    table = [m.embed_tokens.embedding_weight.grad for m in (tied, untied)]
    torch.testing.assert_close(table[0], table[1], atol=1e-6, rtol=1e-5)


def test_without_gains_the_sandwich_is_plain_post_norm() -> None:
    """An inner norm repeats the norm before it: the sandwich has the arms it seems to lack."""
    outputs = [
        make(tiny("deepnorm", rounds=3, inner_norm=inner_norm, rms_norm_eps=1e-9))(some_tokens())
        for inner_norm in (True, False)
    ]
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=0)
    differing = make(tiny("deepnorm", rounds=3, inner_norm=False, input_norm=False))(some_tokens())
    assert (differing - outputs[0]).abs().max() > 1e-2


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_beta_is_on_value_output_and_feed_forward_and_nothing_else(mlp: str) -> None:
    base, scaled = make(tiny(rounds=3, mlp=mlp)), make(tiny("deeploop", rounds=3, mlp=mlp))
    beta = (8 * 6) ** -0.5
    assert scaled.scale.beta == pytest.approx(beta)
    ours = base.state_dict()
    d = TINY.hidden_size
    for name, value in scaled.state_dict().items():
        gain = torch.ones(len(value), 1)
        if name.endswith("qkv_proj.weight"):
            gain[2 * d :] = beta
        elif name.endswith("gate_up_proj.weight"):
            gain[: len(value) // 2] = beta
        elif name != "embed_tokens.embedding_weight":
            gain *= beta
        torch.testing.assert_close(value, ours[name] * gain)
    assert sum("embed" in name for name in ours) == 1  # one table for input and output


@pytest.mark.parametrize(
    ("K", "R", "N", "alpha", "beta"),
    [
        (12, 1, 12, "4.899", "0.1021"),
        (12, 3, 36, "8.485", "0.0589"),
        (12, 5, 60, "10.954", "0.0456"),
        (12, 7, 84, "12.961", "0.0386"),
        (24, 1, 24, "6.928", "0.0722"),
        (24, 3, 72, "12.000", "0.0417"),
        (24, 5, 120, "15.492", "0.0323"),
        (24, 7, 168, "18.330", "0.0273"),
    ],
)
def test_the_papers_table(K: int, R: int, N: int, alpha: str, beta: str) -> None:
    scale = resolve_loop(LmConfig(num_blocks=K, rounds=R, arm="deeploop"))
    assert (scale.N, f"{scale.alpha:.3f}", f"{scale.beta:.4f}") == (N, alpha, beta)


def test_the_other_arms() -> None:
    def scale(arm: Arm, **settings: Any) -> Any:
        return resolve_loop(LmConfig(num_blocks=12, rounds=3, arm=arm, **settings))

    assert scale("base").as_dict() == {
        "arm": "base",
        "K": 12,
        "R": 3,
        "N": 36,
        "p": None,
        "alpha": 1.0,
        "beta": 1.0,
        "eps": 1.0,
        "inner_norm": True,
        "ffn_gain": None,
    }
    assert scale("deepnorm").alpha == pytest.approx(72**0.25)
    assert scale("custom", p=0.45).beta == pytest.approx((8 * 36) ** -0.45)
    assert scale("custom", p=0.5).alpha == scale("deeploop").alpha
    assert scale("eps_loop").eps == pytest.approx(1 / (3 * math.sqrt(12)))
    assert scale("eps_sqrt", eps_lambda=2.0).eps == pytest.approx(2 / math.sqrt(36))


def test_eps_multiplies_the_branch() -> None:
    model = make(tiny("eps_loop", rounds=2, eps_lambda=0.5))
    x, update = torch.ones(1, 1, 16), torch.full((1, 1, 16), 3.0)
    expected = 1 + 3 * 0.5 / (2 * math.sqrt(2))
    torch.testing.assert_close(model.residual_step(x, update), torch.full((1, 1, 16), expected))


@pytest.mark.parametrize("arm", ALL_ARMS)
@pytest.mark.parametrize("length", [12, 7])
def test_no_token_sees_later_ones(arm: str, length: int) -> None:
    model = make(tiny(arm, rounds=2))
    tokens = some_tokens(1, length)
    before = model(tokens)
    for place in (1, 4, length - 1):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % VOCAB
        difference = (model(changed) - before).abs().amax(-1)[0]  # (S,)
        assert torch.all(difference[:place] == 0)
        assert torch.all(difference[place:] > 0)


def test_both_forms_of_causal_attention_agree() -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 8, generator=torch.Generator().manual_seed(1))
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(plain_attention(q, k, v, is_causal=True), fused)


@pytest.mark.parametrize("arm", ["base", "deeploop"])
def test_recomputed_activations_give_the_same_gradients(arm: str) -> None:
    gradients = []
    for recompute in (False, True):
        model = make(tiny(arm, rounds=2, activation_checkpointing=recompute))
        tokens = some_tokens()
        model.token_losses(tokens[:, :-1], tokens[:, 1:]).sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(cast(torch.Tensor, a), cast(torch.Tensor, b))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("arm", ["base", "deeploop"])
def test_compiled_blocks_agree_with_plain_ones(arm: str) -> None:
    losses = []
    for compiled in (False, True):
        model = make(tiny(arm, rounds=3))
        if compiled:
            model.compile_blocks()
        tokens = some_tokens()
        loss = model.token_losses(tokens[:, :-1], tokens[:, 1:]).mean()
        loss.backward()
        losses.append((loss, model.embed_tokens.embedding_weight.grad))
    for a, b in zip(*losses, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stream_dtype", ["float32", "compute"])
def test_bfloat16_agrees_with_float32(stream_dtype: str) -> None:
    outputs = [
        make(tiny("deeploop", rounds=2, forward_dtype=dtype, stream_dtype=stream_dtype))(
            some_tokens()
        ).float()
        for dtype in ("float32", "bfloat16")
    ]
    assert (outputs[0] - outputs[1]).abs().max() < 0.05 * outputs[0].abs().max()


def test_arms_of_one_seed_share_their_draws_and_spreads_are_as_set() -> None:
    one = make(replace(tiny(), hidden_size=128, init_std=None))
    other = make(replace(tiny(rounds=4), hidden_size=128, init_std=None))
    key = "layers.0.mlp.up_proj.weight"
    assert torch.equal(one.state_dict()[key], other.state_dict()[key])
    assert one.state_dict()[key].std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert one.embed_tokens.embedding_weight.std().item() == pytest.approx(0.3, rel=0.05)


def test_a_place_without_target_has_no_loss() -> None:
    model = make(tiny())
    tokens = some_tokens()
    targets = tokens.roll(-1, 1)
    whole = model.token_losses(tokens, targets)
    targets[:, 3:] = NO_TARGET
    part = model.token_losses(tokens, targets)
    assert torch.all(part[:, 3:] == 0)
    assert torch.equal(part[:, :3], whole[:, :3])


def test_generation() -> None:
    model = make(tiny("deeploop"))
    prompt = some_tokens(1, 3)[0]

    def continued(temperature: float, top_k: int | None, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return generate(
            model, prompt, 20, temperature=temperature, top_k=top_k, generator=generator
        ).tolist()

    greedy = continued(0.0, None, 0)
    assert greedy[:3] == prompt.tolist()
    assert len(greedy) == 23
    for place in (5, 20):  # also where the start is out of the context
        seen = torch.tensor(greedy[max(0, place - 12) : place]).unsqueeze(0)
        assert greedy[place] == model(seen)[0, -1].argmax()
    assert continued(1.0, 1, 0) == greedy
    assert continued(1.0, None, 1) == continued(1.0, None, 1) != continued(1.0, None, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arm": "custom"}, r"lm.arm=custom needs lm.p, an exponent in \[0, 2\]; got None"),
        ({"arm": "deeploop", "p": 0.3}, "lm.p=0.3 has no effect with lm.arm=deeploop"),
        ({"arm": "base", "eps_lambda": 2.0}, "lm.eps_lambda=2.0 has no effect"),
        ({"arm": "base", "inner_norm": False}, "lm.inner_norm=False has no effect"),
        ({"arm": "deeploop", "ffn_gain": "all"}, "lm.ffn_gain=all has no effect"),
        ({"arm": "eps_loop", "eps_lambda": 0.0}, "lm.eps_lambda must be positive"),
        ({"hidden_size": 100}, "lm.hidden_size must be a multiple of twice .*; try 96"),
        ({"rounds": 0}, "lm.rounds must be 1 or more"),
        ({"dataset": "a b"}, "lm.dataset must be letters"),
        ({"arm": "deeplop"}, "did you mean deeploop?"),
    ],
)
def test_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(LmConfig, values, "lm.")
