"""One vocabulary for both languages (section 5.1), by sentencepiece."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.errors import InputError, VocabularySizeError

# Pairs from which a vocabulary is learned; more take longer and hardly change it.
SAMPLE_PAIRS = 1_000_000
SPACE_SYMBOL = "\u2581"
# Words that sentencepiece learns nothing from: they name its own word-pieces.
_OWN_WORDS = ("<pad>", "<s>", "</s>", "<unk>")
# In bytes. Sentencepiece silently skips longer words, and its default limit is 4,192.
_MAX_WORD_BYTES = 2**30
_MOST_SHOWN = 10


class Vocabulary:
    """A trained byte-pair encoding."""

    def __init__(self, path: Path) -> None:
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise InputError(f"{path} is not a vocabulary; remove its folder: {error}") from error

    def __len__(self) -> int:
        return self._model.get_piece_size()

    def pieces(self) -> list[str]:
        """The word-pieces in the order of their ids."""
        return [self._model.id_to_piece(i) for i in range(len(self))]

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Each line as word-piece ids with the end-of-sentence id, on all cores."""
        return self._model.encode(lines, add_eos=True, num_threads=-1)

    def encode_word(self, word: str) -> list[int]:
        """The ids of a text without white space, without an end of sentence."""
        return self._model.encode(word)

    def decode(self, ids: list[int]) -> str:
        """A sentence as text; control ids such as begin, end and padding are dropped."""
        return self._model.decode(ids)


def train_vocabulary(
    lines: Iterable[str], size: int, path: Path, whole: re.Pattern[str] | None = None
) -> None:
    """Learn a byte-pair encoding of ``size`` word-pieces; equal text gives an identical file.

    Text is not normalised: decoding returns exactly what was encoded. Every character in ``lines``
    becomes a word-piece, except those that sentencepiece reserves; a warning says how many words
    contain these.

    Args:
        lines: with single spaces between words, which are counted here because sentencepiece would
            hold all lines in memory
        whole: words that match become one word-piece each, however rare
    """
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split())
    # Sorted, so that equal text gives equal files. A piece begins with the space before its word.
    kept_whole = sorted(word for word in words if whole and whole.fullmatch(word))
    own = [name for name in _OWN_WORDS if any(name in word for word in words)]
    words.update(set("".join([*kept_whole, *own])))  # to spell such words, which may occur later
    signalled: list[BaseException] = []
    model = io.BytesIO()  # a model that sentencepiece writes to a file contains the file's name
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_entries(words, signalled),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            max_sentence_length=_MAX_WORD_BYTES,
            normalization_rule_name="identity",
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            user_defined_symbols=[SPACE_SYMBOL + word for word in kept_whole],
            num_threads=1,
            minloglevel=2,
        )
    except (OSError, RuntimeError) as error:
        message = str(error)
        too_high = re.search(r"too high.*?<= (\d+)", message)
        too_small = re.search(r"smaller than required_chars\.? *(\d+) vs (\d+)", message)
        if too_high:
            raise VocabularySizeError(
                f"vocab_size {size} is more than the text allows: at most {too_high[1]}"
            ) from error
        if too_small:
            raise VocabularySizeError(
                f"vocab_size {size} is too small: the text's characters alone need {too_small[2]}"
            ) from error
        raise next(iter(signalled), error) from None
    path.write_bytes(model.getvalue())
    _warn_of_lost_characters(words, Vocabulary(path))


def _warn_of_lost_characters(words: Counter[str], vocabulary: Vocabulary) -> None:
    """Warn of words with characters that do not come back from word-pieces."""
    lost = {SPACE_SYMBOL} | set("".join(words)).difference(vocabulary.pieces())
    count = sum(times for word, times in words.items() if not lost.isdisjoint(word))
    if count:
        found = sorted(f"U+{ord(x):04X}" for x in lost.intersection("".join(words)))
        warnings.warn(
            f"{count:,} words hold characters that no word-piece can stand for "
            f"({', '.join(found[:_MOST_SHOWN])}): decoding loses them; replace them in the text",
            stacklevel=3,
        )


def _entries(words: Counter[str], signalled: list[BaseException]) -> Iterator[str]:
    """Words with their counts; ``signalled`` gets an exception that a signal raises here, which
    sentencepiece would replace with an error of its own.
    """
    try:
        for word, count in words.items():
            yield f"{word}\t{count}"
    except (SystemExit, KeyboardInterrupt) as error:
        signalled.append(error)
        raise
