"""CTranslate2 gives our scores for every row of Table 3 and finds the same translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import ctranslate2
import pytest
import torch

from ablations.tables.scales import QUICK
from ablations.tables.table3 import TABLE
from experiments.export.engine import CTranslate2Decoder, write_ctranslate2_model
from tests.samples import TINY_MODEL, random_sentences, tiny_model
from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig, ModelConfig
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer

ROWS = {row.name: TABLE.configure(row, QUICK).model for row in TABLE.rows}


def lively_model(config: ModelConfig, *, end: float = 0.5) -> Transformer:
    """A random model with hypotheses of many lengths; a larger ``end`` makes them shorter."""
    torch.manual_seed(0)
    model = Transformer(config).eval()
    with torch.no_grad():
        weight = model.embedding.weight[: config.vocab_size]
        for parameter in model.parameters():
            real = weight if parameter is model.embedding.weight else parameter
            real.add_(torch.randn_like(real), alpha=0.3)
        weight *= 1.5
        weight[[PAD_ID, BOS_ID]] *= 0.3
        bias = model.get_parameter(f"decoder.{config.num_layers - 1}.feed_forward_norm.norm.bias")
        bias.add_(weight[EOS_ID], alpha=end)
    return model


def some_sources(lengths: Sequence[int]) -> list[list[int]]:
    return [random_sentences([length])[0].tolist() for length in lengths]


def check_same(
    model: Transformer,
    vocabulary: Vocabulary,
    decoding: DecodingConfig,
    sources: Sequence[Sequence[int]],
) -> dict[int, list[int]]:
    found = dict(CTranslate2Decoder(model, vocabulary, decoding).decode(sources))
    assert found == dict(decode_sentences(model, sources, decoding))
    return found


@pytest.mark.parametrize("name", ROWS)
def test_each_row_of_table_3_has_our_scores(
    name: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = lively_model(dataclasses.replace(ROWS[name], vocab_size=61, max_positions=11))
    write_ctranslate2_model(model, vocabulary, tmp_path)
    pieces = vocabulary.pieces()
    sources, targets = (some_sources([2, 17, 5, 12]) for _ in range(2))
    texts = [[[pieces[i] for i in row[:-1]] for row in rows] for rows in (sources, targets)]
    translator = ctranslate2.Translator(str(tmp_path), inter_threads=1, intra_threads=1)
    for source, target, found in zip(
        sources, targets, translator.score_batch(*texts, max_input_length=0), strict=True
    ):
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target[:-1]]]))[0]
            logits[:, [PAD_ID, BOS_ID]] = -torch.inf
        expected = logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.7])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_same_hypotheses_as_ours(
    positions: str, beam_size: int, alpha: float, vocabulary: Vocabulary
) -> None:
    """One-token sentences among them, more than one batch, and each way through the search."""
    config = dataclasses.replace(
        TINY_MODEL, positions="learned" if positions == "learned" else "sinusoidal"
    )
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=alpha, max_extra_length=7)
    sources = some_sources([1, 2, *torch.randint(2, 25, (101,)).tolist()])
    found = check_same(lively_model(config), vocabulary, decoding, sources)
    assert len({len(hypothesis) for hypothesis in found.values()}) > 2


def test_hypotheses_that_reach_the_length_limit_are_as_ours(vocabulary: Vocabulary) -> None:
    model, sources = lively_model(TINY_MODEL, end=-3.0), some_sources([3, 11, 2, 7, 3])
    found = check_same(model, vocabulary, DecodingConfig(max_extra_length=5), sources)
    assert [len(found[row]) for row in range(5)] == [8, 16, 7, 12, 8]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_padding_and_the_begin_are_never_chosen(beam_size: int, vocabulary: Vocabulary) -> None:
    model = lively_model(TINY_MODEL)
    with torch.no_grad():
        model.embedding.weight[[PAD_ID, BOS_ID]] = 3 * model.embedding.weight[[7, 11]]
        tgt = torch.tensor([[BOS_ID, 5, 7, 11, 13, 17, 23]])
        likeliest = model(torch.tensor([[5, 7, EOS_ID]]), tgt).argmax(-1)
    assert {PAD_ID, BOS_ID} & set(likeliest[0].tolist()), "the model is not tempted"
    decoding = DecodingConfig(beam_size=beam_size, max_extra_length=5)
    found = check_same(model, vocabulary, decoding, some_sources([2, 3, 5, 7, 11, 13]))
    assert not any({PAD_ID, BOS_ID, EOS_ID} & set(hypothesis) for hypothesis in found.values())


def test_a_sentence_with_too_many_positions_is_left_to_our_search(vocabulary: Vocabulary) -> None:
    decoding = DecodingConfig(beam_size=1, max_extra_length=3)
    check_same(lively_model(TINY_MODEL, end=3.0), vocabulary, decoding, some_sources([3, 2_046]))


def test_torch_keeps_its_threads(
    vocabulary: Vocabulary, set_threads: Callable[[int], None]
) -> None:
    set_threads(2)
    CTranslate2Decoder(tiny_model().float(), vocabulary, DecodingConfig())
    assert torch.get_num_threads() == 2
