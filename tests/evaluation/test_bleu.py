"""BLEU and chrF against sacreBLEU and by hand, and tokenised BLEU against Papineni's formula."""

# ruff: noqa: RUF001 - the quotes and dashes of other languages are what is tested

from __future__ import annotations

import math
from importlib.metadata import version

import pytest
import sacrebleu

from transformer.errors import InputError
from transformer.evaluation.bleu import bleu, chrf, moses_tokens, tokenised_bleu

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
        with pytest.raises(InputError, match=f"no score of {counts} references: give one"):
            bleu(lines, references)
    assert found.signature == (
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )


def test_chrf_is_the_mean_of_f_scores_over_orders_of_characters() -> None:
    """Popović (2015, 2017): precision and recall averaged over n-grams of 1 to 6 letters, spaces
    left out, and recall counted twice.
    """
    ours, reference = "eins zwo drei", "eins zwei vier"
    # Of n = 1 to 6: n-grams in common, of ours and of the reference.
    common, of_ours, of_reference = [9, 6, 4, 3, 2, 1], range(11, 5, -1), range(12, 6, -1)
    precision = sum(x / y for x, y in zip(common, of_ours, strict=True)) / 6
    recall = sum(x / y for x, y in zip(common, of_reference, strict=True)) / 6
    found = chrf([ours], [reference])
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert math.isclose(found.score, expected), (found.score, expected)
    assert found.signature == (
        f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"
    )
    assert chrf(HYPOTHESES, TRUTHS).score == sacrebleu.corpus_chrf(HYPOTHESES, [TRUTHS]).score
    with pytest.raises(InputError, match="no score of 2 hypotheses and 3 references"):
        chrf(HYPOTHESES[:2], TRUTHS)


@pytest.mark.slow
def test_each_of_several_references_counts() -> None:
    """A translation that is one of them, each in another line, is perfect."""
    first = [
        "Das ist ein kleines Haus.",
        "Die Katze schläft auf dem Sofa.",
        "Es regnet heute viel.",
    ]
    second = ["Dies ist ein kleines Heim.", "Auf dem Sofa schläft die Katze.", "Heute regnet es."]
    ours = [first[0], second[1], second[2]]
    found = {
        "bleu": bleu(ours, first, "de", [second]),
        "chrf": chrf(ours, first, [second]),
        "tokenised": tokenised_bleu(ours, first, "de", [second]),
    }
    for name, score in found.items():
        assert math.isclose(score.score, 100.0), name
        assert score.signature.startswith("nrefs:2|"), name
    mixed = [first[0][:9] + second[0][9:], *first[1:]]
    assert (
        bleu(mixed, first, "de", [second]).score
        == sacrebleu.corpus_bleu(mixed, [first, second]).score
    )
    assert chrf(mixed, first, [second]).score == sacrebleu.corpus_chrf(mixed, [first, second]).score
    with pytest.raises(InputError, match="no score of 3 hypotheses and 2 references"):
        bleu(ours, first, "de", [second[:2]])


@pytest.mark.parametrize(
    ("languages", "tokenizer"),
    [
        ("zh zh-CN ZH_tw zh-Hant-HK zho chi zho_Hans zho_simp cmn cmn_Hans yue yue_Hant wuu", "zh"),
        ("ja ja_XX jpn jpn_Jpan th_TH tha tha_Thai khm lo_LA lao mya bur_Mymr bo bod_Tibt", "char"),
        ("ko kor kor_Hang zh-Latn nan_Latn ja_Latn vi deu_Latn tgt", "13a"),
    ],
)
def test_languages_without_spaces_are_split_into_characters(languages: str, tokenizer: str) -> None:
    # Of 7 to 4 n-grams, the last of each is wrong.
    score = 100 * math.prod([6 / 7, 5 / 6, 4 / 5, 3 / 4]) ** 0.25
    for language in languages.split():
        found = bleu(["今天天气很好吗"], ["今天天气很好。"], language)
        assert f"|tok:{tokenizer}|" in found.signature, language
        assert math.isclose(found.score, 0.0 if tokenizer == "13a" else score)


def test_every_code_of_a_language_gives_the_same_score() -> None:
    """Two lines of Chinese, which are a word each where spaces end words."""
    hypotheses, references = ["我喜欢喝咖啡。", "今天天气好。"], ["我喜欢喝茶。", "今天天气很好。"]
    found = bleu(hypotheses, references, "zh")
    assert math.isclose(found.score, 51.13591498978437) and "|tok:zh|" in found.signature
    for code in ("zho_Hans", "zho", "zh-CN"):
        assert bleu(hypotheses, references, code) == found


def test_an_unknown_language_is_named() -> None:
    for language in ("chinese", "jp", ""):
        with pytest.warns(
            UserWarning, match=f"^'{language}' is not the code of a language, such as"
        ):
            assert "|tok:13a|" in bleu(TRUTHS, TRUTHS, language).signature


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


@pytest.mark.slow
def test_tokenised_bleu_is_that_of_the_tokens() -> None:
    hypotheses = [
        'Das "Rich-Text-Format", z. B. für E-Mails, kostet 1.000,50 Euro.',
        "Dr. Müller sagte: 'Es geht nicht', am 3. Mai.",
        '"Ja" und nein-',
    ]
    found = tokenised_bleu(hypotheses, GERMAN, "de")
    for code in ("de-AT", "deu", "ger", "deu_Latn"):
        assert tokenised_bleu(hypotheses, GERMAN, code) == found
    for code in ("zho_Hans", "yue", "cmn"):
        assert "|tok:moses-zh|" in tokenised_bleu(["天气"], ["天气"], code).signature
    # Equation 1 of Papineni et al. (2002) over the tokens of both, counted by hand.
    assert math.isclose(found.score, 58.51628126637026, rel_tol=1e-9)
    assert found.signature == (
        "nrefs:1|case:mixed|quotes:plain|tok:moses-de|compounds:split|smooth:none|"
        f"version:sacremoses-{version('sacremoses')}"
    )
    assert tokenised_bleu(["eins zwei drei vier"], ["eins zwei drei fünf"], "de").score == 0
