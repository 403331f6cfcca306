"""Norms and their places against formulas written out, and the learning rates without warm-up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablations.tables import norms as tables
from ablations.tables.scales import QUICK, SMALL
from ablations.tables.table3 import BASE
from tests.model.test_model import (
    BATCH,
    CONFIG,
    SRC,
    TGT,
    causal,
    random,
    randomise_norm,
    source_padding,
    torchs_layer,
)
from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import ModelConfig, override
from transformer.evaluation.counts import count_parameters
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.module import TransformerModule
from transformer.variant import build, variant_name
from transformer.variants import norms
from transformer.variants.layers import PreNorm
from transformer.variants.schedules import NoWarmup


def add_bottom(theirs: nn.Module, bottom: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
    """LN(bottom + x + FFN(x)) with the weights of a layer of torch's."""
    inner, outer = theirs.get_submodule("linear1"), theirs.get_submodule("linear2")
    return norm(bottom + x + outer(torch.relu(inner(x))))


def test_b2t_adds_the_input_of_an_encoder_layer_before_its_last_norm() -> None:
    ours = norms.B2TTransformer(CONFIG).encoder[0].double().eval()
    assert type(ours) is norms.B2TEncoderLayer
    theirs = torchs_layer(ours)
    src = random(BATCH, SRC, CONFIG.d_model)
    hidden, mask = source_padding()
    attended, _ = theirs.self_attn(src, src, src, key_padding_mask=hidden, need_weights=False)
    expected = add_bottom(theirs, src, theirs.norm1(src + attended), theirs.norm2)
    torch.testing.assert_close(ours(src, mask)[~hidden], expected[~hidden])


def test_b2t_adds_the_input_of_a_decoder_layer_before_its_last_norm() -> None:
    ours = norms.B2TTransformer(CONFIG).decoder[0].double().eval()
    assert type(ours) is norms.B2TDecoderLayer
    theirs = torchs_layer(ours)
    tgt, memory = random(BATCH, TGT, CONFIG.d_model), random(BATCH, SRC, CONFIG.d_model)
    (future, mask), (hidden, src_mask) = causal(), source_padding()
    attended, _ = theirs.self_attn(tgt, tgt, tgt, attn_mask=future, need_weights=False)
    x = theirs.norm1(tgt + attended)
    seen, _ = theirs.multihead_attn(x, memory, memory, key_padding_mask=hidden, need_weights=False)
    expected = add_bottom(theirs, tgt, theirs.norm2(x + seen), theirs.norm3)
    projected = *ours.cross_attention.keys_values(memory), src_mask
    torch.testing.assert_close(ours(tgt, mask, projected), expected)


def test_peri_norm_normalises_what_a_sublayer_takes_and_gives() -> None:
    model = norms.PeriNormTransformer(TINY_MODEL).double().eval()
    first, last = (layer.feed_forward_norm for layer in model.encoder)
    assert isinstance(first, norms.PeriNorm) and isinstance(last, norms.PeriNorm)
    assert isinstance(first.last_norm, nn.Identity) and isinstance(last.last_norm, nn.LayerNorm)
    randomise_norm(first)
    nn.init.uniform_(first.output_norm.weight, 0.5, 1.5)
    x, width = random(3, TINY_MODEL.d_model), (TINY_MODEL.d_model,)
    normed = F.layer_norm(x, width, first.norm.weight, first.norm.bias)
    expected = x + F.layer_norm(normed.exp(), width, first.output_norm.weight)
    torch.testing.assert_close(first(x, torch.exp), expected)
    plain = x + F.layer_norm(F.layer_norm(x, width).exp(), width)
    torch.testing.assert_close(last(x, torch.exp), F.layer_norm(plain, width))


def test_scale_norm_has_the_root_of_the_width_as_its_first_length() -> None:
    model = norms.ScaleNormTransformer(TINY_MODEL).double().eval()
    assert not any(isinstance(part, nn.LayerNorm) for part in model.modules())
    wrapper = model.decoder[-1].feed_forward_norm
    assert isinstance(wrapper, PreNorm) and isinstance(wrapper.last_norm, norms.ScaleNorm)
    norm = wrapper.last_norm
    x = random(3, TINY_MODEL.d_model)
    assert torch.allclose(norm(x).norm(dim=-1), torch.tensor(26**0.5, dtype=torch.float64))
    nn.init.constant_(norm.gain, 1.7)
    torch.testing.assert_close(norm(x), 1.7 * x / x.square().sum(-1, keepdim=True).sqrt())


def test_fix_norm_word_pieces_have_length_1_on_both_sides() -> None:
    """With the last ScaleNorm, a logit is g times the cosine of state and word-piece."""
    config = replace(TINY_MODEL, model=variant_name(norms.ScaleNormTransformer))
    model = build(config).double().eval()
    raw = dict(model.named_parameters())["embedding.weight"][: config.vocab_size]
    directions = raw / raw.norm(dim=1, keepdim=True)
    tokens = random_sentences([5])
    expected = directions[tokens] * math.sqrt(26) + model.embedding.encode_positions(0, 5)
    torch.testing.assert_close(model.embedding(tokens), expected)
    src, tgt = random_sentences([5]), random_targets([7])
    states = model.states(src, tgt)[0]
    gain = math.sqrt(26)
    cosines = F.cosine_similarity(states[:, None], raw[None], dim=-1)
    torch.testing.assert_close(model(src, tgt)[0], gain * cosines, rtol=1e-6, atol=1e-6)
    targets = tgt[0]
    _, nll = smoothed_cross_entropy(states, model.output.weight, targets, 0.0, config.vocab_size)
    nll_of_cosines = F.cross_entropy(gain * cosines, targets, reduction="sum")
    torch.testing.assert_close(nll, nll_of_cosines, rtol=1e-6, atol=0.0)


@pytest.mark.slow
def test_lengths_of_fix_norm_word_pieces_are_saved_and_change_nothing() -> None:
    config = replace(TINY_MODEL, model=variant_name(norms.ScaleNormTransformer))
    model = build(config).eval()
    saved = model.state_dict()
    assert saved["embedding.weight"].shape == (61, 26)
    src, tgt = random_sentences([5]), random_targets([7])
    logits = model(src, tgt)
    saved["embedding.weight"] = 3 * saved["embedding.weight"]
    model.load_state_dict(saved)
    torch.testing.assert_close(model(src, tgt), logits)


def test_parameters_of_each_place_of_the_norms() -> None:
    """A layer norm has 2 d parameters, ScaleNorm one; there are 5 N, and pre-norm's two last."""
    config = ModelConfig(num_layers=3)
    width, base = config.d_model, count_parameters(config)

    def more(row: str) -> int:
        (model,) = (x.changes["model"] for x in tables.ROWS if x.name == row)
        return count_parameters(replace(config, model=str(model))) - base

    assert more("pre") == 2 * 2 * width
    assert more("b2t") == 0
    assert more("peri") == 15 * 2 * width + 2 * 2 * width
    assert more("scale-norm") == 17 - 15 * 2 * width


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine"])
def test_without_a_warm_up_training_begins_at_the_peak(schedule: str) -> None:
    """d_model 64 and a warm-up of 1,600 steps: the peak is factor / 320."""
    sizes = {"d_model": 64, "num_layers": 1, "vocab_size": 61}
    steps = {"warmup_steps": 1_600, "max_steps": 12_000}
    config = override(BASE, learning_rate_factor=0.5, schedule=schedule, **sizes, **steps)
    plain, without = TransformerModule(config), NoWarmup(config)
    peak = 0.5 / 320
    assert plain.learning_rate(1) == pytest.approx(peak / 1_600)
    for step in (1, 2, 1_599, 1_600):
        assert without.learning_rate(step) == pytest.approx(peak)
    for step in (1_601, 6_400, 12_000):
        assert without.learning_rate(step) == plain.learning_rate(step) < peak
    if schedule == "inverse_sqrt":
        assert without.learning_rate(6_400) == pytest.approx(peak / 2)


def test_the_tables_have_the_same_rows_at_n_and_3n_layers_and_without_warm_up() -> None:
    assert tables.TABLE.rows == tables.EARLY.rows and not tables.ROWS[0].changes
    for chosen in (QUICK, SMALL):
        for row in tables.ROWS:
            config = tables.TABLE.configure(row, chosen)
            assert config.model.num_layers == (9 if row.name.endswith("-3N") else 3)
            is_method = config.training.method == variant_name(NoWarmup)
            assert is_method == row.name.endswith("-no-warmup")
            early = tables.EARLY.configure(row, chosen)
            assert early == override(config, max_steps=early.training.max_steps)
    steps = [tables.EARLY.configure(None, x).training.max_steps for x in (QUICK, SMALL)]
    assert steps == [266, 2_000]
