"""Translate and score with an export for CTranslate2.

The search is CTranslate2's own, which differs from ours: it divides the log-probability of a
hypothesis of n word-pieces, its end included, by n to the power of the length penalty, not by the
paper's ((5 + n) / 6) to that power. So signatures name it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from experiments.evaluate.trained import load_trained
from experiments.evaluate.translator import Text, Translator, with_search
from experiments.records.data import run_vocabulary
from experiments.records.experiment import DecodingOptions, is_ctranslate2, load_exported
from transformer.config import DecodingConfig
from transformer.data.store import MAX_PIECES
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError, require
from transformer.evaluation.perplexity import Perplexity, scored_pairs, translated_lines

# Source word-pieces per batch, with padding.
_TOKENS_PER_BATCH = 1_024


@dataclass(frozen=True, slots=True)
class ExportedModel(Translator):
    """An export for CTranslate2: a model in its own arithmetic, such as int8, and its search."""

    translator: Any

    @property
    def search(self) -> str:
        decoding, kind = self.experiment.config.decoding, self.translator.compute_type
        return (
            f"CTranslate2 {version('ctranslate2')} in {kind}, beam {decoding.beam_size}, "
            f"its own length penalty, to the power {decoding.length_penalty:g}"
        )

    def score(self, text: Text, hypotheses: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        scores, signatures = super(ExportedModel, self).score(text, hypotheses)
        decoding, kind = self.experiment.config.decoding, self.translator.compute_type
        search = (
            f"search:ctranslate2-{version('ctranslate2')}|type:{kind}|beam:{decoding.beam_size}|"
            f"penalty:length^{decoding.length_penalty:g}"
        )
        return scores, {name: f"{found}|{search}" for name, found in signatures.items()}

    def decode(
        self,
        lines: Sequence[str],
        *,
        on_progress: Callable[[int], object] | None = None,
        first_line: int = 1,
    ) -> list[str]:
        translations = [""] * len(lines)
        rows, sources = translated_lines(self.vocabulary, lines, first_line)
        found = search(self.translator, self.vocabulary, sources, self.experiment.config.decoding)
        for done, (index, hypothesis) in enumerate(found, start=1):
            translations[rows[index]] = self.vocabulary.decode(hypothesis)
            if on_progress is not None:
                on_progress(done)
        return translations

    def perplexity(self, text: Text) -> Perplexity:
        """The perplexity of the references by CTranslate2's own probabilities.

        An export gives no probability to padding and begin of sentence; our models give a little.
        """
        pairs, rows = scored_pairs(self.vocabulary, text.sources, text.references)
        pieces = self.vocabulary.pieces()
        sides: tuple[list[list[str]], list[list[str]]] = ([], [])
        for row in rows.tolist():
            for side, ids in zip(sides, pairs[row], strict=True):
                side.append([pieces[piece] for piece in ids[:-1].tolist()])
        with _kept_threads():
            scored = self.translator.score_batch(
                *sides,
                max_batch_size=_TOKENS_PER_BATCH,
                batch_type="tokens",
                max_input_length=0,
            )
        log_probs = [result.log_probs for result in scored]
        references = [text.references[row] for row in rows.tolist()]
        return Perplexity.of(-sum(map(sum, log_probs)), sum(map(len, log_probs)), references)


def search(
    translator: Any,
    vocabulary: Vocabulary,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
) -> Iterator[tuple[int, list[int]]]:
    """Translate by CTranslate2's own search.

    Args:
        sources: word-piece ids, each ending with the end-of-sentence id, which CTranslate2 adds
        config: its length penalty is the power of CTranslate2's formula

    Yields:
        The index of a source and its translation without the end-of-sentence id.
    """
    pieces = vocabulary.pieces()
    ids = {piece: number for number, piece in enumerate(pieces)}

    def length(row: int) -> int:
        return len(sources[row])

    # A call has one limit for all of its sentences, and ours depends on the length.
    for source_length, group in groupby(sorted(range(len(sources)), key=length), key=length):
        rows = list(group)
        with _kept_threads():
            results = translator.translate_batch(
                [[pieces[piece] for piece in sources[row][:-1]] for row in rows],
                beam_size=config.beam_size,
                length_penalty=config.length_penalty,
                max_batch_size=_TOKENS_PER_BATCH,
                batch_type="tokens",
                max_input_length=0,
                max_decoding_length=min(source_length + config.max_extra_length, MAX_PIECES),
                min_decoding_length=0,
            )
        for row, result in zip(rows, results, strict=True):
            yield row, [ids[piece] for piece in result.hypotheses[0]]


@contextmanager
def _kept_threads() -> Generator[None]:
    """Keep torch's number of threads, which CTranslate2 changes."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def load_translator(directory: Path, options: DecodingOptions) -> Translator:
    """Load the model of a run or of an export; one for CTranslate2 comes with its own search."""
    if not is_ctranslate2(directory):
        return load_trained(directory, **asdict(options))
    if options.average is not None:
        raise InputError(f"{directory} is an export and holds no checkpoints to average")
    experiment = load_exported(directory)
    if experiment.config.data.corpus.task == "parsing":
        raise InputError(
            f"{directory} is a parser's, which may write only trees, and CTranslate2's search "
            "cannot be constrained: give the run, or an export as safetensors"
        )
    experiment = with_search(experiment, options.beam_size, options.length_penalty)
    return ExportedModel(experiment, run_vocabulary(directory), open_ctranslate2(directory))


def open_ctranslate2(directory: Path, device: str | None = None) -> Any:
    """Open the model in a folder, in the type that it was written in if the device supports it.

    Args:
        device: cpu or cuda; None takes a GPU if there is one

    Raises:
        InputError: if CTranslate2 is not installed, or cannot read it.
    """
    require("ctranslate2")
    import ctranslate2

    if device is None:
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    threads = torch.get_num_threads()
    try:
        with _kept_threads():
            return ctranslate2.Translator(str(directory), device=device, intra_threads=threads)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"CTranslate2 cannot read {directory}: {reason}") from error
