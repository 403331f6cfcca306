"""BLEU against sacreBLEU, and tokenised BLEU against Papineni's formula."""

# ruff: noqa: RUF001 - the quotes and dashes of other languages are what is tested

from __future__ import annotations

import math
from importlib.metadata import version

import pytest
import sacrebleu

from transformer.errors import InputError
from transformer.evaluation.bleu import bleu, moses_tokens, tokenised_bleu

HYPOTHESES = ["The cat sat on the mat.", "A dog, barked loudly; at 3.5 cats!", "Quite another one."]
TRUTHS = ["The cat sat on a mat.", "A dog barked loudly at 3.5 cats!", "Something else entirely."]

GERMAN = [
    "Das „Rich-Text-Format“ – z. B. für E-Mails – kostet 1.000,50 Euro…",
    "Dr. Müller sagte: ‚Es geht’s nicht an‘, am 3. Mai 2013.",
    "«Ja», und nein-",
]
GERMAN_TOKENS = [
    'Das " Rich ##AT##-##AT## Text ##AT##-##AT## Format " - z. B. für E ##AT##-##AT## Mails - '
    "kostet 1.000,50 Euro ...",
    "Dr. Müller sagte : ' Es geht ' s nicht an ' , am 3. Mai 2013 .",
    '" Ja " , und nein-',
]


def test_bleu_is_sacrebleus_with_its_signature() -> None:
    found = bleu(HYPOTHESES, TRUTHS)
    assert found.score == sacrebleu.corpus_bleu(HYPOTHESES, [TRUTHS]).score
    assert 20 < found.score < 80
    assert math.isclose(bleu(TRUTHS, TRUTHS).score, 100.0)
    for lines, references, counts in ((HYPOTHESES[:2], TRUTHS, "2 .* 3"), ([], [], "0 .* 0")):
        with pytest.raises(InputError, match=f"no BLEU of {counts} references: give one"):
            bleu(lines, references)
    assert found.signature == (
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("zh", "zh"), ("zh-CN", "zh"), ("ja", "char"), ("th_TH", "char")]
)
def test_languages_without_spaces_are_split_into_characters(language: str, tokenizer: str) -> None:
    found = bleu(["今天天气很好吗"], ["今天天气很好。"], language)
    # Of 7 to 4 n-grams, the last of each is wrong.
    precisions = [6 / 7, 5 / 6, 4 / 5, 3 / 4]
    assert math.isclose(found.score, 100 * math.prod(precisions) ** 0.25)
    assert f"|tok:{tokenizer}|" in found.signature


@pytest.mark.parametrize(
    ("lines", "language", "tokens"),
    [
        (GERMAN, "de", GERMAN_TOKENS),
        (["“Peut-être” qu'il l’a dit."], "fr", ["\" Peut-être \" qu' il l' a dit ."]),
        (["Qapla', tlhIngan!"], "tlh", ["Qapla ' , tlhIngan !"]),
    ],
)
def test_tokens_one_by_one(lines: list[str], language: str, tokens: list[str]) -> None:
    """German compounds are split; Moses does not know Klingon."""
    assert moses_tokens(lines, language) == tokens


def test_tokenised_bleu_is_that_of_the_tokens() -> None:
    hypotheses = [
        'Das "Rich-Text-Format", z. B. für E-Mails, kostet 1.000,50 Euro.',
        "Dr. Müller sagte: 'Es geht nicht', am 3. Mai.",
        '"Ja" und nein-',
    ]
    found = tokenised_bleu(hypotheses, GERMAN, "de")
    assert found == tokenised_bleu(hypotheses, GERMAN, "de-AT")
    # Equation 1 of Papineni et al. (2002) over the tokens of both, counted by hand.
    assert math.isclose(found.score, 58.51628126637026, rel_tol=1e-9)
    assert found.signature == (
        "nrefs:1|case:mixed|quotes:plain|tok:moses-de|compounds:split|smooth:none|"
        f"version:sacremoses-{version('sacremoses')}"
    )
    assert tokenised_bleu(["eins zwei drei vier"], ["eins zwei drei fünf"], "de").score == 0
