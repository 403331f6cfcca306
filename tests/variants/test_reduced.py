"""Variants with less than the paper's model, and with attention by position, against formulas."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablations.tables import all_you_need, depths
from ablations.tables.find import find_scale
from ablations.tables.scales import PAPER, QUICK, SMALL
from ablations.tables.table import Row, Table
from tests.samples import TINY_MODEL, all_but_first_slow, random_sentences, random_targets
from tests.training.test_module import fit, flat
from transformer.config import Config, ModelConfig, override
from transformer.decoding.incremental import IncrementalDecoder
from transformer.errors import InputError
from transformer.evaluation.attention_weights import Kind, attention_weights
from transformer.evaluation.counts import count_parameters
from transformer.fields import Options
from transformer.kernels.sentence_attention import can_serve
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import FeedForward, Transformer
from transformer.training import step_kinds
from transformer.training.step_kinds import NotPossibleError, check_packing
from transformer.variant import build, variant_name
from transformer.variants import fixed_weights, reduced
from transformer.variants.layers import PreNormTransformer

ROWS = {
    row.name: (table, row)
    for table in (all_you_need.TABLE, depths.TABLE)
    for row in table.rows
    if row.changes
}
DEPTHS = [(2, 1), (1, 3)]


def config_of(kind: type[Transformer], **options: Any) -> ModelConfig:
    return replace(TINY_MODEL, model=variant_name(kind), options=Options.of(options))


def parts_of(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(part, kind) for part in model.modules())


def expected_weights(row: Row, config: ModelConfig) -> int:
    """The weights of all layers' matrices by a closed form, for a row of all-you-need."""
    n, width = config.num_layers, config.d_model
    network, attention = 2 * width * config.d_ff, 4 * width * config.num_heads * config.d_k
    networks, attentions = 2 * n, 3 * n
    networks = {
        "no-ffn-decoder": n, "no-ffn-encoder": n, "no-ffn": 0, "one-ffn": 1, "averaging": 3 * n,
    }.get(row.name, networks)  # fmt: skip
    attentions = {
        "no-self-decoder": 2 * n, "no-self-encoder": 2 * n, "cross-last": 2 * n + 1,
    }.get(row.name, attentions)  # fmt: skip
    found = networks * network + attentions * attention
    if row.name == "fixed-heads":  # without W^Q and W^K of all heads but one
        found -= n * 2 * width * (config.num_heads - 1) * config.d_k
    if row.name == "averaging":  # gates of 2 d_model by 2 d_model in place of attention
        found += n * (4 * width**2 - attention)
    return found


@pytest.mark.parametrize("scale", [PAPER, SMALL], ids=lambda scale: scale.name)
@pytest.mark.parametrize("row", all_you_need.ROWS, ids=lambda row: row.name)
def test_weights_of_all_rows_by_a_closed_form(row: Row, scale: Any) -> None:
    config = all_you_need.TABLE.configure(row, scale).model
    with torch.device("meta"):
        model = build(config)
    matrices = {
        key: weight.numel()
        for key, weight in model.named_parameters()
        if weight.dim() == 2 and not key.startswith("embedding")
    }
    assert sum(matrices.values()) == expected_weights(row, config)
    base = count_parameters(all_you_need.TABLE.configure(None, scale).model)
    if row.name == "one-wide-ffn":
        n, width = config.num_layers, config.d_model
        # Output biases of all networks but one, and the decoder's gains and biases after networks.
        assert count_parameters(config) == base - (2 * n - 1) * width - 2 * n * width
    if row.name.startswith("one-head"):
        assert count_parameters(config) == base


@pytest.mark.slow
@pytest.mark.parametrize("table", [depths.TABLE, depths.PRE_NORM], ids=lambda each: each.name)
@pytest.mark.parametrize("name", all_but_first_slow(["quick", "small", "medium", "paper"]))
def test_depths_have_the_weights_that_they_should(name: str, table: Table) -> None:
    """10-3 and 2-9 those of 6-6, but for biases and gains; in units of an attention's."""
    scale, sizes = find_scale(table, name), table.configure(None, find_scale(table, name)).model
    assert sizes.num_layers == 6 and sizes.d_ff == 4 * sizes.d_model
    unit, width = 4 * sizes.d_model**2, sizes.d_model
    found: dict[str, int] = {}
    for row in table.rows:
        with torch.device("meta"):
            model = build(table.configure(row, scale).model)
        layers = len(model.encoder), len(model.decoder)
        assert row.name in (f"{layers[0]}-{layers[1]}", "base")
        of_matrices = [x.numel() for x in model.parameters() if x.dim() == 2]
        found[row.name] = sum(of_matrices) - model.embedding.weight.numel()
        assert found[row.name] == (3 * layers[0] + 4 * layers[1]) * unit
        others = sum(x.numel() for x in model.parameters() if x.dim() == 1)
        of_norms = 4 * layers[0] + 6 * layers[1]
        if table is depths.PRE_NORM:
            of_norms += 4  # a last norm of each stack
        assert others == (5 * sum(layers) + of_norms) * width
    assert found["10-3"] == found["2-9"] == found["base"] == 42 * unit


def test_networks_are_shared_or_left_out() -> None:
    kind = reduced.FewerNetworksTransformer
    n = TINY_MODEL.num_layers
    counts = {
        (encoder, decoder): parts_of(
            build(config_of(kind, encoder=encoder, decoder=decoder)), FeedForward
        )
        for encoder in ("own", "shared", "none")
        for decoder in ("own", "shared", "none")
    }
    of_one = {"own": n, "shared": 1, "none": 0}
    for (encoder, decoder), count in counts.items():
        both = encoder == decoder == "shared"
        assert count == (1 if both else of_one[encoder] + of_one[decoder])
    model = build(config_of(kind, encoder="shared", decoder="none", wide=True))
    (shared,) = {layer.feed_forward for layer in model.encoder}
    assert shared.inner.out_features == 2 * n * TINY_MODEL.d_ff
    assert parts_of(model, nn.LayerNorm) == 2 * n + 2 * n
    assert not [key for key in model.state_dict() if key.startswith("decoder") and "feed" in key]
    src, tgt = random_sentences([5]), random_targets([7])
    logits = model.eval()(src, tgt)
    with torch.no_grad():
        shared.outer.bias.add_(1.0)
    assert not torch.allclose(model(src, tgt), logits)


def test_a_layer_without_a_network_is_its_attention_alone() -> None:
    model = build(config_of(reduced.FewerNetworksTransformer, encoder="none")).double().eval()
    layer = model.encoder[0]
    x, mask = torch.randn(3, 7, TINY_MODEL.d_model, dtype=torch.float64), torch.zeros(1, 1, 1, 7)
    attended = layer.self_attention.within(x, mask)
    expected = F.layer_norm(x + attended, (TINY_MODEL.d_model,))
    torch.testing.assert_close(layer(x, mask), expected)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, [2, 2, 2]),
        ({"encoder": False}, [0, 2, 2]),
        ({"decoder": False}, [2, 0, 2]),
        ({"cross": "last"}, [2, 2, 1]),
    ],
)
def test_attention_is_left_out_of_one_part(options: dict[str, Any], left: list[int]) -> None:
    model = build(config_of(reduced.FewerAttentionsTransformer, **options))
    parts = (
        [layer.self_attention for layer in model.encoder],
        [layer.self_attention for layer in model.decoder],
        [layer.cross_attention for layer in model.decoder],
    )
    real = [[type(part) is MultiHeadAttention for part in each] for each in parts]
    assert [sum(each) for each in real] == left
    assert real[2][-1]
    assert parts_of(model, nn.LayerNorm) == 2 * 5 - (6 - sum(left))
    src, tgt = random_sentences([5]), random_targets([7])
    if sum(left) == 6:
        assert len(attention_weights(model, src, tgt)) == 3
    else:
        with pytest.raises(InputError, match=r"has layers without (encoder|decoder|cross) att"):
            attention_weights(model, src, tgt)


def test_without_self_attention_a_word_is_read_alone() -> None:
    """The encoder's words, and the decoder's but for what it attends to in the encoder."""
    kind = reduced.FewerAttentionsTransformer
    src, tgt = random_sentences([5]), random_targets([7])
    other = src.clone()
    other[0, 1] = 4 + (other[0, 1] + 1) % 57
    changed = tgt.clone()
    changed[0, 2] = 4 + (changed[0, 2] + 1) % 57
    mask = torch.zeros(1, 1, 1, 5)
    for options, alone in (({"encoder": False}, True), ({}, False)):
        model = build(config_of(kind, **options)).eval()
        same = torch.isclose(model.encode(src, mask), model.encode(other, mask)).all(-1)[0]
        assert same.tolist() == [alone, False, alone, alone, alone]
    for options, alone in (({"decoder": False}, True), ({}, False)):
        model = build(config_of(kind, **options)).eval()
        same = torch.isclose(model(src, tgt), model(src, changed)).all(-1)[0]
        assert same.tolist() == [True, True, False, *[alone] * 4]


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_one_head_is_as_wide_as_all(part: Kind) -> None:
    model = build(config_of(reduced.OneHeadTransformer, part=part))
    parts = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    sizes = Counter((each.num_heads, each.d_k, each.d_v) for each in parts)
    assert sizes == {(1, 15, 21): 2, (3, 5, 7): 4}
    weights = attention_weights(model, random_sentences([5]), random_targets([7]))
    assert {kind: found.size(1) for kind, found in weights.items()} == {
        **dict.fromkeys(("encoder", "decoder", "cross"), 3),
        part: 1,
    }


@pytest.mark.parametrize("kind", [reduced.DepthsTransformer, reduced.PreNormDepthsTransformer])
@pytest.mark.parametrize(("encoder", "decoder"), DEPTHS)
def test_stacks_have_their_depths(kind: type[Transformer], encoder: int, decoder: int) -> None:
    model = build(config_of(kind, encoder=encoder, decoder=decoder))
    assert (len(model.encoder), len(model.decoder)) == (encoder, decoder)
    with pytest.raises(InputError, match="1 and 0 layers: each stack needs at least one"):
        build(config_of(kind, encoder=1, decoder=0))


def test_stacks_of_equal_depth_are_the_pre_norm_model() -> None:
    """The same weights give the same scores."""
    stacks = build(config_of(reduced.PreNormDepthsTransformer, encoder=2, decoder=2)).eval()
    whole = build(config_of(PreNormTransformer)).eval()
    assert TINY_MODEL.num_layers == 2
    whole.load_state_dict(stacks.state_dict())
    batch = random_sentences([5, 3]), random_targets([7, 4])
    torch.testing.assert_close(stacks(*batch), whole(*batch))


def pattern_by_hand(number: int, length: int) -> Tensor:
    """A fixed pattern of a sentence of ``length``, entry by entry."""
    found = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length):
        for j in range(length):
            found[i, j] = (
                float(j == i),
                float(j == i - 1),
                float(j == i + 1),
                (j + 1) ** 3 if j <= i - 2 else 0,
                (length - j) ** 3 if j >= i + 2 else 0,
                (j + 1) ** 3,
                (length - j) ** 3,
            )[number]
        if found[i].sum() == 0:
            found[i, i] = 1
        found[i] /= found[i].sum()
    return found


def test_fixed_patterns_are_those_written_by_hand_for_each_length() -> None:
    lengths = [7, 5, 1, 2]
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    found = fixed_weights.position_patterns(real, torch.float64)
    assert found.shape == (4, 7, 7, 7)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, 7, 7, dtype=torch.float64))
    for row, length in enumerate(lengths):
        for number in range(7):
            weights = found[row, number, :length]
            torch.testing.assert_close(weights[:, :length], pattern_by_hand(number, length))
            assert not weights[:, length:].any()


@pytest.mark.parametrize("heads", [1, 3, 11])
def test_all_heads_but_the_first_have_fixed_weights(heads: int) -> None:
    config = replace(config_of(fixed_weights.FixedHeadsTransformer), num_heads=heads)
    model = build(config).double().eval()
    part = model.encoder[1].self_attention
    shapes = part.query.weight.shape, part.key_value.weight.shape
    assert shapes == ((5, 26), (5 + 7 * heads, 26))
    weights = attention_weights(model, random_sentences([5]), random_targets([7]))["encoder"]
    for head in range(1, heads):
        for layer in weights:
            torch.testing.assert_close(layer[head], pattern_by_hand((head - 1) % 7, 5))
    x, mask = torch.randn(1, 5, 26, dtype=torch.float64), torch.zeros(1, 1, 1, 5)
    value = (x @ part.key_value.weight[5:].T).view(5, heads, 7)
    scores = (x[0] @ part.query.weight.T) @ (x[0] @ part.key_value.weight[:5].T).T / math.sqrt(5)
    expected = [scores.softmax(-1) @ value[:, 0]]
    expected += [pattern_by_hand((h - 1) % 7, 5) @ value[:, h] for h in range(1, heads)]
    joined = torch.cat(expected, dim=-1) @ part.output.weight.T
    torch.testing.assert_close(part.within(x, mask)[0], joined)


def gated(part: fixed_weights.AverageAttention, x: Tensor, mean: Tensor) -> Tensor:
    """Equations 1 to 3 of Zhang et al. 2018, of means by hand."""
    network, width = part.feed_forward, x.size(-1)
    inner = (mean @ network.inner.weight.T + network.inner.bias).clamp(min=0)
    average = inner @ network.outer.weight.T + network.outer.bias
    gates = torch.cat([x, average], -1) @ part.gate.weight.T + part.gate.bias
    gates = 1 / (1 + (-gates).exp())
    return gates[..., :width] * x + gates[..., width:] * average


def test_averaging_is_the_cumulative_mean() -> None:
    model = build(config_of(fixed_weights.AverageAttentionTransformer)).double().eval()
    part = model.decoder[0].self_attention
    assert isinstance(part, fixed_weights.AverageAttention)
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    mask = torch.full((7, 7), -torch.inf).triu(1)
    mean = torch.stack([x[:, : j + 1].mean(1) for j in range(7)], dim=1)
    torch.testing.assert_close(part.within(x, mask), gated(part, x, mean))
    weights = attention_weights(model, random_sentences([5]), random_targets([7]))["decoder"]
    uniform = torch.ones(7, 7, dtype=torch.float64).tril()
    expected = uniform / uniform.sum(-1, keepdim=True)
    torch.testing.assert_close(weights, expected.expand_as(weights))


@pytest.mark.parametrize("name", ROWS)
def test_decoding_word_by_word_gives_the_logits_of_whole_sentences(name: str) -> None:
    """Two hypotheses a sentence, the second of which both continue; then a sentence is dropped."""
    table, row = ROWS[name]
    found = table.configure(row, PAPER).model
    config = replace(TINY_MODEL, model=found.model, options=found.options)
    model = build(config).double().eval()
    src, tgt = random_sentences([5, 3, 7]), random_targets([8, 8, 8])
    decoder = IncrementalDecoder(model, src)
    decoder.step(tgt[:, :1].expand(3, 2))
    decoder.step(tgt[:, 1:3])
    decoder.select_hypotheses(torch.ones(3, 2, dtype=torch.long))
    kept = torch.tensor([2, 0])
    decoder.select_sentences(kept)
    logits = decoder.step(tgt[kept, 3:5])
    for hypothesis in range(2):
        whole = tgt[kept][:, [0, 2, 3 + hypothesis]]
        torch.testing.assert_close(logits[:, hypothesis], model(src[kept], whole)[:, -1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize(
    "name", all_but_first_slow([*(row.name for row in all_you_need.ROWS[1:]), "6-1"])
)
def test_twenty_steps_resume_bit_for_bit(name: str, tiny_config: Config, tmp_path: Path) -> None:
    table, row = ROWS[name]
    found = table.configure(row, QUICK).model
    config = override(tiny_config, dropout=0.2, model=found.model, options=found.options)
    whole, expected = fit(config, 20)
    fit(config, 11, tmp_path / "stop.ckpt")
    resumed, rest = fit(config, 20, tmp_path / "stop.ckpt")
    assert rest.losses == expected.losses[11:]
    assert torch.equal(flat(resumed), flat(whole))
    assert sum(expected.losses[-5:]) < sum(expected.losses[:5])


def test_a_head_too_wide_for_the_kernel_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    def serves(device: torch.device, d_k: int, d_v: int) -> bool:
        return can_serve(device, d_k, d_v) and max(d_k, d_v) < 21

    monkeypatch.setattr(step_kinds, "can_serve", serves)
    check_packing(build(TINY_MODEL))
    with pytest.raises(NotPossibleError, match="no kernel packs heads of d_k 15 and d_v 21 here"):
        check_packing(build(config_of(reduced.OneHeadTransformer, part="cross")))


@pytest.mark.parametrize(
    "table",
    [all_you_need.TABLE, depths.TABLE, depths.PRE_NORM],
    ids=lambda each: each.name,
)
def test_each_row_names_one_variant_and_what_its_source_found(table: Table) -> None:
    base, *rows = table.rows
    assert not base.changes
    if table is not depths.PRE_NORM:
        assert table.base == all_you_need.BASE
    for row in rows:
        assert row.reference in ("better", "same", "worse", "")
        for name in ("quick", "small", "medium", "paper"):
            config = table.configure(row, find_scale(table, name))
            assert config.model.model is not None
            sizes = table.configure(None, find_scale(table, name)).model
            assert replace(config.model, model=sizes.model, options=sizes.options) == sizes
