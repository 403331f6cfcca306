"""Search against enumeration and its plain definition, caching, and independence of batches."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.common import workload
from tests.samples import random_sentences, random_targets
from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig, ModelConfig, Positions
from transformer.decoding import beam_search, decode_sentences, search
from transformer.decoding.beams import Beams
from transformer.decoding.incremental import IncrementalDecoder
from transformer.kernels import key_value_cache
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding
from transformer.model.encoder_decoder import Transformer

Hypothesis = tuple[int, ...]
Scored = tuple[float, Hypothesis]


def penalised(total: float, length: int, alpha: float) -> float:
    """log p over the length penalty."""
    return total / ((5 + length) / 6) ** alpha


def plain_beam_search(
    log_probabilities: Callable[[list[Hypothesis]], Tensor], config: DecodingConfig, limit: int
) -> Hypothesis:
    """``log_probabilities`` are of the word-piece after each hypothesis, ``(…, vocab_size)``."""
    beam, alpha = config.beam_size, config.length_penalty
    alive: list[Scored] = [(0.0, ())]
    finished: list[Scored] = []
    for length in range(1, limit + 1):
        candidates: list[Scored] = []
        following = log_probabilities([prefix for _, prefix in alive]).tolist()
        for (total, prefix), row in zip(alive, following, strict=True):
            candidates += [
                (total + p, (*prefix, token)) for token, p in enumerate(row) if p > float("-inf")
            ]
        candidates.sort(reverse=True)
        finished += [
            (penalised(total, length, alpha), tokens[:-1])
            for total, tokens in candidates[:beam]
            if tokens[-1] == EOS_ID
        ]
        alive = [c for c in candidates if c[1][-1] != EOS_ID][:beam]
        best_possible = penalised(alive[0][0], limit, alpha)
        if len(finished) >= beam or (finished and max(finished)[0] >= best_possible):
            break
    return max(finished)[1] if finished else alive[0][1]


# Six of eight word-pieces may be chosen: the unknown one, the end, and four more.
SMALL = ModelConfig(
    vocab_size=8, num_layers=1, d_model=14, d_ff=11, num_heads=3, d_k=5, d_v=7, dropout=0.0
)
LARGE = dataclasses.replace(SMALL, vocab_size=61, num_layers=2)
alphas = pytest.mark.parametrize("alpha", [0.0, 0.6, 1.7])


class LivelyEmbedding(Embedding):
    """Has a separate output map with biases, because tied ones tend to repeat their input."""

    def __init__(self, config: ModelConfig, end: float) -> None:
        super().__init__(config)
        self.output = torch.nn.Linear(config.d_model, config.vocab_size)
        torch.nn.init.normal_(self.output.weight, std=2.5 * config.d_model**-0.5)
        torch.nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.output.bias[EOS_ID] = end

    def logits(self, states: Tensor) -> Tensor:
        """Untied."""
        return self.output(states)


def lively_model(config: ModelConfig = SMALL, *, seed: int = 0, end: float = 0.0) -> Transformer:
    """A model with varied outputs; ``end`` is added to the logit of the end of a sentence."""
    torch.manual_seed(seed)
    model = Transformer(config)
    model.embedding = LivelyEmbedding(config, end)
    model.reset_parameters()
    return model.double().eval()


def log_probabilities(model: Transformer, src: Tensor, prefixes: list[Hypothesis]) -> Tensor:
    """Of the next word-piece, by the whole model without a cache, in fp32 like the search."""
    tgt = torch.tensor([[BOS_ID, *prefix] for prefix in prefixes])
    logits = model(src.expand(len(prefixes), -1), tgt)[:, -1].float()
    logits[:, [PAD_ID, BOS_ID]] = -torch.inf
    return logits.log_softmax(-1)


def enumerate_finished(model: Transformer, src: Tensor, limit: int) -> dict[Hypothesis, float]:
    """log p of every hypothesis of at most ``limit`` word-pieces, end included."""
    continuing = [i for i in range(SMALL.vocab_size) if i not in (PAD_ID, BOS_ID, EOS_ID)]
    alive: dict[Hypothesis, float] = {(): 0.0}
    finished: dict[Hypothesis, float] = {}
    for _ in range(limit):
        following = log_probabilities(model, src, list(alive)).tolist()
        extended: dict[Hypothesis, float] = {}
        for (prefix, total), row in zip(alive.items(), following, strict=True):
            finished[prefix] = total + row[EOS_ID]
            extended |= {(*prefix, token): total + row[token] for token in continuing}
        alive = extended
    return finished


@pytest.mark.slow
@alphas
@pytest.mark.parametrize("end", [-2.0, 0.0])
def test_an_exhaustive_beam_finds_the_best_hypothesis(alpha: float, end: float) -> None:
    limit, beam = 4, 5**4
    config = DecodingConfig(beam_size=beam, length_penalty=alpha, max_extra_length=2)
    lengths: set[int] = set()
    for seed in range(3):
        model = lively_model(end=end, seed=seed)
        src = random_sentences([2], vocab_size=8)
        with torch.no_grad():
            finished = enumerate_finished(model, src, limit)
            (found,) = beam_search(model, src, config)
        assert len(finished) == 1 + 5 + 25 + 125
        best = max(finished, key=lambda h: penalised(finished[h], len(h) + 1, alpha))
        assert tuple(found) == best
        lengths.add(len(best))
    assert len(lengths) > 1, "hypotheses of one length show nothing of the penalty"


@pytest.mark.slow
@alphas
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_beam_search_equals_its_plain_definition(beam_size: int, alpha: float) -> None:
    config = DecodingConfig(beam_size=beam_size, length_penalty=alpha, max_extra_length=5)
    outcomes: set[Hypothesis] = set()
    for seed, end in itertools.product(range(3), (-2.0, 0.5)):
        model = lively_model(end=end, seed=seed)
        sources = [random_sentences([length], vocab_size=8) for length in (2, 3, 5)]
        for src in sources:
            with torch.no_grad():
                following = functools.partial(log_probabilities, model, src)
                expected = plain_beam_search(following, config, limit=src.size(1) + 5)
                (found,) = beam_search(model, src, config)
            assert tuple(found) == expected
            outcomes.add(expected)
    assert len(outcomes) > 8, "the model is not lively enough to show a difference"


# What commit 482c8d1e found, greedily and with a beam of 4.
GOLDEN = {
    1: [
        [59, 59, 59, 59, 59, 59],
        [9, 15, 19, 9, 40, 60, 4, 8, 9, 19, 9, 40],
        [16, 35, 6, 16, 16],
        [9, 15, 41, 19, 9, 40, 60, 4, 4],
    ],
    4: [[59, 59, 59, 59, 59, 59], [9, 19, 9, 19, 9, 40, 60, 15], [16, 35, 6, 16, 16], [9]],
}


@pytest.mark.parametrize("beam_size", GOLDEN)
def test_translations_are_those_of_an_earlier_commit(beam_size: int) -> None:
    model = lively_model(LARGE, end=2.0, seed=2)
    src = random_sentences([3, 9, 2, 6])
    with torch.no_grad():
        found = beam_search(model, src, DecodingConfig(beam_size=beam_size, max_extra_length=3))
    assert found == GOLDEN[beam_size]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_cached_steps_give_the_logits_of_full_decoding(positions: Positions) -> None:
    model = lively_model(dataclasses.replace(LARGE, max_positions=5, positions=positions))
    src, tgt = random_sentences([5, 2, 7]), random_targets([11, 11, 11])
    with torch.no_grad():
        full = model(src, tgt)
        decoder = IncrementalDecoder(model, src)
        steps = [decoder.step(tgt[:, i : i + 1])[:, 0] for i in range(11)]
    torch.testing.assert_close(torch.stack(steps, dim=1), full, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_result_depends_on_no_size_of_batches_or_number_of_threads(
    beam_size: int, set_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lively_model(LARGE, end=2.0)
    config = DecodingConfig(beam_size=beam_size, max_extra_length=7)
    torch.manual_seed(5)
    lengths = torch.randint(1, 20, (23,)).tolist()
    sources = [random_sentences([length])[0].tolist() for length in lengths]
    results: list[dict[int, list[int]]] = []
    for threads, size in ((1, 1), (1, 77), (1, 611), (2, 2_048), (3, 2_048)):
        set_threads(threads)
        monkeypatch.setattr(search, "_CPU_TOKENS", size)
        results.append(dict(decode_sentences(model, sources, config)))
    assert all(result == results[0] for result in results)
    assert sorted(results[0]) == list(range(23))
    assert len({len(hypothesis) for hypothesis in results[0].values()}) > 5


def measure_steps(
    monkeypatch: pytest.MonkeyPatch,
    measure: Callable[[IncrementalDecoder, Tensor], int] = lambda _, tokens: tokens.size(0),
) -> list[int]:
    """A list to which every later decoding step appends a figure, by default its sentences."""
    figures: list[int] = []
    step = IncrementalDecoder.step

    def spy(decoder: IncrementalDecoder, tokens: Tensor) -> Tensor:
        logits = step(decoder, tokens)
        figures.append(measure(decoder, tokens))
        return logits

    monkeypatch.setattr(IncrementalDecoder, "step", spy)
    return figures


@pytest.mark.slow
def test_finished_sentences_stay_until_they_are_an_eighth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing copies everything that stays; sentences that stay change no result."""
    model = lively_model(LARGE, end=2.0)
    config = DecodingConfig(beam_size=3, max_extra_length=5)
    src = random_sentences(list(range(2, 20)))
    with torch.no_grad():
        alone = [beam_search(model, row[row.ne(PAD_ID)][None], config)[0] for row in src]
        sizes = measure_steps(monkeypatch)
        assert beam_search(model, src, config) == alone
    shares = [1 - after / before for before, after in itertools.pairwise(sizes) if before > after]
    assert shares and min(shares) >= 1 / 8
    assert sizes[-1] < 8


def test_a_search_stops_when_no_live_hypothesis_can_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is nearly certain at once, so longer hypotheses cannot win."""
    model = lively_model(LARGE, end=60.0)
    sizes = measure_steps(monkeypatch)
    with torch.no_grad():
        found = beam_search(model, random_sentences([7]), DecodingConfig(beam_size=4))
    assert found == [[]] and sizes == [1]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 5])
def test_keys_and_values_fit_into_memory(beam_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the beam and the length: more sentences make more batches."""
    room = 500_000
    monkeypatch.setattr(search, "_CPU_CACHE_BYTES", room)
    model = lively_model(LARGE, end=-9.0)
    config = DecodingConfig(beam_size=beam_size, max_extra_length=40)

    def taken(decoder: IncrementalDecoder, _: Tensor) -> int:
        caches = [tensor for cache in decoder._caches for tensor in (cache._keys, cache._values)]
        memory = [tensor for pair in decoder._memory for tensor in pair]
        return sum(tensor.nbytes for tensor in caches + memory)

    figures = measure_steps(monkeypatch, taken)
    monkeypatch.setattr(key_value_cache, "_INITIAL_STEPS", 1)
    sources = [random_sentences([length])[0].tolist() for length in (2,) * 20]
    monkeypatch.setattr(search, "_CPU_TOKENS", 40)
    found = dict(decode_sentences(model, sources, config))
    assert len(found) == 20
    assert 0.3 * room < max(figures) <= room


def test_on_a_gpu_keys_and_values_take_a_quarter_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = 80 * 10**9
    properties = SimpleNamespace(total_memory=total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    weight = SimpleNamespace(is_cuda=True, device="cuda:0", element_size=lambda: 2)
    decoder = [None] * LARGE.num_layers
    embedding = SimpleNamespace(weight=weight)
    model: Any = SimpleNamespace(embedding=embedding, decoder=decoder, config=LARGE)
    widths = LARGE.num_layers * LARGE.num_heads * (LARGE.d_k + LARGE.d_v)
    taken = search._positions_in_memory(model) * widths * 2
    assert taken == pytest.approx(total / 4, rel=1e-6)


def test_news_is_decoded_in_few_steps_on_a_gpu() -> None:
    """Python takes as long to ask for a step with few sentences as for one with many."""
    config = DecodingConfig(max_extra_length=0)
    lengths = workload(torch.device("cuda")).lengths()[:3_003, 0].tolist()
    batches = search._batches(lengths, search._GPU_TOKENS, 10**7, config, min_batches=1)
    assert sum(lengths[rows[0]] for rows in batches) <= 1.5 * max(lengths)


def test_a_batch_too_large_for_the_memory_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lively_model(LARGE, end=2.0)
    sources = [random_sentences([length])[0].tolist() for length in (2, 3, 5, 5, 7, 8, 9)]
    config = DecodingConfig(beam_size=2, max_extra_length=3)
    expected = dict(decode_sentences(model, sources, config))
    room, sizes = 2, list[int]()

    def search_in_little_memory(model: Transformer, src: Tensor, *args: Any) -> list[list[int]]:
        sizes.append(len(src))
        if len(src) > room:
            raise torch.OutOfMemoryError
        return beam_search(model, src, *args)

    monkeypatch.setattr(search, "beam_search", search_in_little_memory)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert dict(decode_sentences(model, sources, config)) == expected
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        dict(decode_sentences(model, sources, config))


class Operations(TorchDispatchMode):
    """Counts those that are kernels on a GPU, and those that would wait for it."""

    _WAITING = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "_to_copy")

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.waiting = Counter[str](), list[str]()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch for each operation."""
        name = func._schema.name.removeprefix("aten::")
        self.kernels[name] += not func.is_view
        # A number for torch.where is copied to the device.
        numbers = name == "where" and any(arg.device.type == "cpu" for arg in args)
        if name in self._WAITING or numbers:
            self.waiting.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("beam", [1, 4])
def test_a_step_on_a_gpu_is_short_and_waits_for_no_result(beam: int) -> None:
    """Tensors without contents stand for those of a GPU: reading one of them raises an error.

    Kernels take a GPU's host as long whatever their size; here are those beside the layers'.
    """
    with torch.device("meta"), torch.no_grad():
        model = Transformer(dataclasses.replace(LARGE, vocab_size=3_001)).eval()
        model.decoder = cast(Any, torch.nn.ModuleList())
        decoder = IncrementalDecoder(model, torch.ones(3, 7, dtype=torch.long))
        beams = Beams.start(torch.full((3,), 9), longest=9, beam=beam, alpha=0.6)
        search.extend(decoder, beams)
        with Operations() as operations:
            search.extend(decoder, beams)
    assert beams.history.shape == (3, beam, 2)
    assert operations.kernels.total() <= 70
    assert operations.waiting == []
    with pytest.raises(RuntimeError, match="meta"):
        beams.done.any().item()


@pytest.mark.parametrize("beam", [1, 4])
def test_masks_on_a_gpu_are_as_its_kernel_reads_them(
    beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer would copy one whose rows begin anywhere else."""
    masks: list[Tensor] = []
    attend = MultiHeadAttention.attend

    def spy(part: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        masks.append(mask)
        assert mask.size(-1) == k.size(2)
        return attend(part, q, k, v, mask)

    monkeypatch.setattr(MultiHeadAttention, "attend", spy)
    with torch.device("meta"):
        model = Transformer(LARGE).eval()
        decoder = IncrementalDecoder(model, torch.ones(5, 7, dtype=torch.long))
        beams = Beams.start(torch.full((5,), 20), longest=20, beam=beam, alpha=0.6)
        for _ in range(9):
            search.extend(decoder, beams)
        decoder.select_sentences(torch.arange(3))
        beams.select(torch.arange(3))
        search.extend(decoder, beams)
    assert masks[-1].shape == (3, 1, 1, 7) and masks[-2].shape == (3, 1, beam, 10 * beam)
    assert {stride % 8 for mask in masks for stride in mask.stride()[:-1]} == {0}
