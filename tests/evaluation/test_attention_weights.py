"""The weights of attention against what the model computes with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.samples import TINY_MODEL, random_sentences, random_targets, tiny_model
from transformer.config import DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.evaluation.attention_weights import KINDS, Kind, attend, attention_weights
from transformer.evaluation.perplexity import translate
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer

SRC, TGT = 11, 7
LAYERS, HEADS = TINY_MODEL.num_layers, TINY_MODEL.num_heads


def test_weights_times_values_are_what_each_attention_gives() -> None:
    model = tiny_model().eval()
    outputs: list[Tensor] = []
    expected: list[Tensor] = []
    src, tgt = random_sentences([SRC]), random_targets([TGT])
    weights = attention_weights(model, src, tgt)

    def compare(module: MultiHeadAttention, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kind, layer = order[len(outputs)]
        heads = weights[kind][layer] @ inputs[2][0]
        joined = heads.transpose(0, 1).reshape(output.size(1), -1)
        expected.append(module.output(joined))
        outputs.append(output[0])

    order: list[tuple[Kind, int]] = [("encoder", layer) for layer in range(LAYERS)]
    for layer in range(LAYERS):
        order.extend([("decoder", layer), ("cross", layer)])
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            assert not module._forward_hooks  # none is left to slow the model down
            module.register_forward_hook(compare)
    with torch.no_grad():
        model.states(src, tgt)
    assert len(outputs) == 3 * LAYERS
    for found, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_layers_that_share_an_attention_have_their_own_weights() -> None:
    model = tiny_model().eval()
    src, tgt = random_sentences([SRC]), random_targets([TGT])
    for layer in model.encoder[1:]:
        layer.self_attention.load_state_dict(model.encoder[0].self_attention.state_dict())
    apart = attention_weights(model, src, tgt)
    for layer in model.encoder[1:]:
        layer.self_attention = model.encoder[0].self_attention
    shared = attention_weights(model, src, tgt)
    for kind in KINDS:
        torch.testing.assert_close(shared[kind], apart[kind])
    assert not torch.allclose(shared["encoder"][0], shared["encoder"][1])


def test_each_query_gives_one_and_the_decoder_nothing_to_later_positions() -> None:
    weights = attention_weights(tiny_model(), random_sentences([SRC]), random_targets([TGT]))
    shapes = {kind: tuple(found.shape) for kind, found in weights.items()}
    assert shapes == {
        "encoder": (LAYERS, HEADS, SRC, SRC),
        "decoder": (LAYERS, HEADS, TGT, TGT),
        "cross": (LAYERS, HEADS, TGT, SRC),
    }
    for found in weights.values():
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    assert not weights["decoder"].triu(1).any()
    assert weights["encoder"].triu(1).any()


def text(pieces: list[str]) -> str:
    return "".join(pieces).replace("\u2581", " ").strip()


@pytest.mark.parametrize("given", [None, "drei neun"])
def test_queries_are_named_for_what_is_written_and_keys_for_what_was_read(
    given: str | None, vocabulary: Vocabulary
) -> None:
    model = Transformer(TINY_MODEL).eval()
    decoding = DecodingConfig(beam_size=2, max_extra_length=5)
    found = attend(model, vocabulary, " one\ttwo\n", decoding, translation=given)
    translation = given or translate(model, vocabulary, ["one two"], decoding)[0]
    assert text(found["encoder"].keys) == text(found["cross"].keys) == "one two</s>"
    assert text(found["decoder"].queries) == text(found["cross"].queries) == f"{translation}</s>"
    assert found["decoder"].keys == ["<s>", *found["decoder"].queries[:-1]]
    for kind in KINDS:
        sizes = (len(found[kind].queries), len(found[kind].keys))
        assert found[kind].weights.shape == (LAYERS, HEADS, *sizes)


@pytest.mark.parametrize(
    ("sentence", "translation", "said"),
    [
        (" ", None, "the sentence is empty: give one sentence in quotes"),
        ("one", "", "the translation is empty"),
        ("on\udce9", None, "the sentence is not UTF-8"),
        ("one " * 2_048, None, "the sentence has 4,097 word-pieces: give at most 2,048"),
    ],
)
def test_what_has_no_weights_is_refused(
    sentence: str, translation: str | None, said: str, vocabulary: Vocabulary
) -> None:
    model = Transformer(TINY_MODEL)
    with pytest.raises(InputError) as refused:
        attend(model, vocabulary, sentence, DecodingConfig(), translation=translation)
    assert said in str(refused.value)
