"""Beam search by CTranslate2, which is faster on CPUs.

CTranslate2 ends a search as ours does: when as many hypotheses have finished as the beam is wide.
Two differences are evened out here: its formula for the length penalty is another one, and it
returns only the likeliest of the finished hypotheses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from experiments.export.ctranslate2_model import POSITIONS, write_ctranslate2_model
from transformer.config import EOS_ID, DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences, length_penalty
from transformer.model.encoder_decoder import Transformer

# Source word-pieces per batch, with padding. With larger batches, cores wait for each other.
_TOKENS_PER_BATCH = 1_024
# Leaves log p unchanged. Not zero: with zero, the search may end when its best has finished.
_NO_PENALTY = 1e-30


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hypothesis:
    """``tokens`` exclude the end of sentence; ``length`` includes it if there is one."""

    tokens: list[int]
    log_p: float
    length: int
    ends: bool

    def score(self, alpha: float) -> float:
        return self.log_p / _penalty(self.length, alpha)


class CTranslate2Decoder:
    """Decodes with the weights of ``model`` as :func:`decode_sentences` does.

    It starts a worker with one thread for each of torch's threads, which is faster than many
    threads on one batch.

    Args:
        folder: an export for CTranslate2; if None, a temporary one is made in fp32
    """

    def __init__(
        self,
        model: Transformer,
        vocabulary: Vocabulary,
        config: DecodingConfig,
        *,
        folder: Path | None = None,
    ) -> None:
        self._model, self._config = model, config
        self._pieces = vocabulary.pieces()
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        if folder is not None:
            self._translator = _load(folder)
            return
        with tempfile.TemporaryDirectory() as temporary:
            write_ctranslate2_model(model, vocabulary, Path(temporary))
            self._translator = _load(Path(temporary))

    def decode(self, sources: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
        """Translate sources that end with the end-of-sentence id, the longest first.

        Yields:
            The index of a source and its hypothesis without the end-of-sentence id.
        """
        left = [row for row, source in enumerate(sources) if not self._takes(source)]
        again: dict[int, list[int]] = {}
        for row, found in self._search(sources, self._batches(sources)):
            limit = len(sources[row]) + self._config.max_extra_length
            if self._config.beam_size == 1:
                yield row, found[0].tokens[:limit]
            elif (best := self._certain_best(found, limit)) is not None:
                yield row, best.tokens
            else:
                again.setdefault(min(limit, max(h.length for h in found)), []).append(row)
        yield from self._decode_again(sources, again)
        for index, tokens in decode_sentences(
            self._model, [sources[row] for row in left], self._config
        ):
            yield left[index], tokens

    def _takes(self, source: Sequence[int]) -> bool:
        """Whether CTranslate2 can: it refuses empty sources and those with too many positions."""
        return 1 < len(source) <= POSITIONS - self._config.max_extra_length

    def _certain_best(self, found: list[_Hypothesis], limit: int) -> _Hypothesis | None:
        """The best of all finished hypotheses, if it is certainly among those returned.

        Others may have finished. None of them is likelier than the least likely one returned, and
        none is longer than the longest: the search would have ended before it finished.
        """
        longest = max(h.length for h in found)
        if longest > limit or not all(h.ends for h in found):
            return None
        alpha = self._config.length_penalty
        best = max(found, key=lambda h: h.score(alpha))
        bound = min(h.log_p for h in found) / _penalty(longest, alpha)
        return best if best.score(alpha) >= bound else None

    def _decode_again(
        self, sources: Sequence[Sequence[int]], again: dict[int, list[int]]
    ) -> Iterator[tuple[int, list[int]]]:
        """Search up to the known last step, with enough patience that everything is returned."""
        alpha = self._config.length_penalty
        batches = [(rows, steps) for steps, rows in again.items()]
        for row, found in self._search(sources, batches, patience=2):
            if ended := [h for h in found if h.ends]:
                yield row, max(ended, key=lambda h: h.score(alpha)).tokens
            else:
                yield row, max(found, key=lambda h: h.log_p).tokens

    def _search(
        self,
        sources: Sequence[Sequence[int]],
        batches: list[tuple[list[int], int]],
        patience: int = 1,
    ) -> Iterator[tuple[int, list[_Hypothesis]]]:
        """What CTranslate2 finds for each row; each batch has its number of steps."""
        waiting = [
            (rows, self._submit([sources[row] for row in rows], steps, patience))
            for rows, steps in batches
        ]
        for rows, results in waiting:
            for row, result in zip(rows, results, strict=True):
                yield row, self._read(result.result())

    def _submit(self, sources: list[Sequence[int]], steps: int, patience: int) -> list[Any]:
        beam = self._config.beam_size
        return self._translator.translate_batch(
            [[self._pieces[token] for token in source[:-1]] for source in sources],
            asynchronous=True,
            beam_size=beam,
            patience=patience,
            num_hypotheses=beam * patience,
            length_penalty=_NO_PENALTY,
            return_end_token=True,
            return_scores=beam > 1,
            max_input_length=0,
            max_decoding_length=steps,
            min_decoding_length=0,
        )

    def _read(self, result: Any) -> list[_Hypothesis]:
        scores = result.scores or [0.0] * len(result.hypotheses)
        found: list[_Hypothesis] = []
        for pieces, log_p in zip(result.hypotheses, scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces]
            ends = tokens[-1:] == [EOS_ID]
            kept = tokens[:-1] if ends else tokens
            found.append(_Hypothesis(tokens=kept, log_p=log_p, length=len(tokens), ends=ends))
        return found

    def _batches(self, sources: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
        """Rows of similar length, the longest first, with the length limit of the longest."""
        rows = [row for row, source in enumerate(sources) if self._takes(source)]
        batches: list[tuple[list[int], int]] = []
        start = 0
        rows.sort(key=lambda row: -len(sources[row]))
        while start < len(rows):
            longest = len(sources[rows[start]])
            end = start + max(1, _TOKENS_PER_BATCH // longest)
            batches.append((rows[start:end], longest + self._config.max_extra_length))
            start = end
        return batches


def _penalty(length: int, alpha: float) -> float:
    return length_penalty(length, alpha).item()


def _load(folder: Path) -> Any:
    threads = torch.get_num_threads()
    translator = ctranslate2.Translator(
        str(folder), device="cpu", inter_threads=threads, intra_threads=1
    )
    torch.set_num_threads(threads)  # CTranslate2 changes torch's setting
    return translator
