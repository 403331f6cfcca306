"""BLEU and chrF by sacreBLEU, and the paper's BLEU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from transformer.data.languages import language_of, warn_if_unknown
from transformer.errors import InputError

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

# As in the authors' script, tensor2tensor/utils/get_ende_bleu.sh; like it, this leaves some hyphens
# between single letters (a-b-c).
_COMPOUND = re.compile(r"(\S)-(\S)")
_SPLIT_COMPOUND = r"\1 ##AT##-##AT## \2"
# That script is for German only.
_LANGUAGES_WITH_COMPOUNDS = ("de",)
# By scripts that put no space between words; sacreBLEU's own for Japanese needs a dictionary.
_TOKENIZERS = {
    **dict.fromkeys(("Hani", "Hans", "Hant"), "zh"),
    **dict.fromkeys(("Hira", "Jpan", "Kana", "Khmr", "Laoo", "Mymr", "Thai", "Tibt"), "char"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusScore:
    """A corpus score in per cent and the signature of how it was computed."""

    score: float
    signature: str


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str = "en",
    more: Sequence[Sequence[str]] = (),
) -> CorpusScore:
    """sacreBLEU's corpus score of detokenised text in ``language``.

    Args:
        references: a line for each hypothesis
        more: further references, each as many lines
    """
    return _scored(sacrebleu_metric(language), hypotheses, [references, *more])


def sacrebleu_metric(language: str, references: Sequence[Sequence[str]] | None = None) -> BLEU:
    """sacreBLEU for this language, such as ``zh`` or ``zho_Hans``; ``13a`` for those with spaces,
    and, with a warning, for an unknown one.
    """
    from sacrebleu.metrics.bleu import BLEU  # slow to import

    warn_if_unknown(language)
    script = language_of(language).script
    given = None if references is None else [list(lines) for lines in references]
    return BLEU(tokenize=script and _TOKENIZERS.get(script), references=given)


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], more: Sequence[Sequence[str]] = ()
) -> CorpusScore:
    """sacreBLEU's chrF2 of detokenised text (Popović 2015, 2017), which no tokenizer changes; of
    several references, the best counts for each line.
    """
    from sacrebleu.metrics.chrf import CHRF  # slow to import

    return _scored(CHRF(), hypotheses, [references, *more])


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    more: Sequence[Sequence[str]] = (),
) -> CorpusScore:
    """BLEU as in Tables 2 and 3: what ``multi-bleu.perl`` computes from tokenised text.

    On German text it is mostly higher than sacreBLEU's, because the parts of a compound and its
    hyphen count as words. It is not smoothed: without a common 4-gram it is 0.

    Args:
        hypotheses: detokenised lines
        references: as many lines
        language: its code; Moses splits languages that it does not know by its English rules
        more: further references, each as many lines
    """
    from sacrebleu.metrics.bleu import BLEU

    language = _moses_code(language)
    scored = _scored(
        BLEU(tokenize="none", smooth_method="none", force=True),
        moses_tokens(hypotheses, language),
        [moses_tokens(lines, language) for lines in (references, *more)],
    )
    compounds = "split" if language in _LANGUAGES_WITH_COMPOUNDS else "whole"
    signature = (
        f"nrefs:{1 + len(more)}|case:mixed|quotes:plain|tok:moses-{language}|compounds:{compounds}|"
        f"smooth:none|version:sacremoses-{version('sacremoses')}"
    )
    return CorpusScore(score=scored.score, signature=signature)


def _moses_code(language: str) -> str:
    """The code of a language for Moses, which knows the written forms of Chinese as one."""
    found = language_of(language)
    return "zh" if found.script and _TOKENIZERS.get(found.script) == "zh" else found.code


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Tokens separated by spaces, with ASCII quotes and dashes and German compounds split.

    Example:
        >>> moses_tokens(["„E-Mail“, z. B. so…"], "de")
        ['" E ##AT##-##AT## Mail " , z. B. so ...']
    """
    normalizer, tokenizer = _moses(language)
    tokenised = [
        " ".join(tokenizer.tokenize(normalizer.normalize(line), escape=False)) for line in lines
    ]
    if language not in _LANGUAGES_WITH_COMPOUNDS:
        return tokenised
    return [_COMPOUND.sub(_SPLIT_COMPOUND, line) for line in tokenised]


@cache
def _moses(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer  # takes half a second

    # Only characters are mapped: commas are neither moved across quotes nor changed in numbers.
    normalizer = MosesPunctNormalizer(
        language, norm_quote_commas=False, norm_numbers=False, pre_replace_unicode_punct=True
    )
    return normalizer, MosesTokenizer(language)


def _scored(
    metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> CorpusScore:
    for lines in references:
        if not 0 < len(hypotheses) == len(lines):
            counts = f"{len(hypotheses):,} hypotheses and {len(lines):,} references"
            raise InputError(f"there is no score of {counts}: give one for each line")
    score = metric.corpus_score(list(hypotheses), [list(lines) for lines in references]).score
    return CorpusScore(score=score, signature=str(metric.get_signature()))


def sentence_chrf(
    hypotheses: Sequence[str], references: Sequence[str], more: Sequence[Sequence[str]] = ()
) -> list[float]:
    """sacreBLEU's chrF2 of each line in per cent, for finding good and bad translations."""
    from sacrebleu.metrics.chrf import CHRF  # slow to import

    metric = CHRF()
    lines = zip(hypotheses, references, *more, strict=True)
    return [metric.sentence_score(ours, list(theirs)).score for ours, *theirs in lines]
