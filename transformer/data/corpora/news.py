"""Parliament and news in English and German that no server offers, as folders of one's own.

Each folder is what its own SOURCE.md says, and lies in the folder ``DATA_FILES``: parts of Europarl
(``europarl-ende``, and ``comtrans-ende``, which is tokenised), the news test sets of WMT
(``wmt-news-ende``) and sentences of Tatoeba (``tatoeba-ende``). Their held-out files stay unused;
the sets of 2013 and 2014 are the paper's own, and no older one is among them.
"""

from __future__ import annotations

from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.corpora.declared import sacrebleu_set

# Of the packed files, English and German.
_SHA256 = {
    "europarl-ende/train": (
        "8934b8cd4f4f0eb14ff100fc0e501cd71f55371dfeb9518f4e58e9c91a6eb3b9",
        "88023aa5b647805e4868c58a4878856040f90126130212ac1e61b65adb4f3eb8",
    ),
    "comtrans-ende/train": (
        "d036987b920ffd1fb57349a1c7cccd039848e1f102bd1ff5754e12cdf3a9d744",
        "6a312f171a44981469c1d0fde4d12bc9cc84be8df87b0aa41757b9eedb4127c7",
    ),
    "tatoeba-ende/train": (
        "12e9547427515a1e0c6af2e21720190bd48e546d7d649722608744b5e68e7a22",
        "7983b5161d487b40703358d701ed8c8179567093d5c30a45bbc6d044af503f31",
    ),
    "wmt-news-ende/news-test2008": (
        "d61d44cb9e6627a074061857225d5b271c76c981700b929c5cc83c2318ffd1a7",
        "6b54c6f40ce1b77b1671f47f1505e065e1e3dc9d704b25f95bb772f61550b58a",
    ),
    "wmt-news-ende/newssyscomb2009": (
        "75c2d3b96e3ed57567c78a0ef2c10a64c3babba833b6457678949f0afe80f4f8",
        "4d09e19ebbfece84727c6af0565704899e71605e89f190465d50e96c2d04dc47",
    ),
    "wmt-news-ende/newstest2009": (
        "8b446b89862c2fc6c52f4eb712d9cf379c69610e2ce23b4387d02c586cfb5884",
        "fe22440019b8e1efc6fb5486a762e9d4529dfa4f3a9f329b62996dfecd686d23",
    ),
    "wmt-news-ende/newstest2010": (
        "044cb997c94f8987d07fec36a1b6d60d4bf0769f0c68d8dc81577063cddf0f8a",
        "1e07d2fe03a9670aea51eb2c4c57fea98e0b43ad1aa025df0b864be42d99db4d",
    ),
    "wmt-news-ende/newstest2011": (
        "33bd4d366989492757f8659a1894fc5e3f1ee8f9cb007deba5363ddb181d4724",
        "239c4994e334e2e23bc22011f9a0254b9c9e71ec44b98a576c00b85e26491bf7",
    ),
    "wmt-news-ende/newstest2012": (
        "3b804cbd24e6e46e35ff01b70a1a31a8f766c7d2e52ac6872779f589cff866e1",
        "208f57c753ce0183b8942e234c6f803c0ed79299b41101c3abebda2546914e21",
    ),
}
_TATOEBA = "tatoeba-ende/train"


def _local(stem: str) -> ParallelText:
    source, target = (
        TextFile(location=f"local:{stem}.{language}.xz", sha256=sha256)
        for language, sha256 in zip(("en", "de"), _SHA256[stem], strict=True)
    )
    return ParallelText(source=source, target=target)


def _news(name: str, licence: str, pairs: int, *stems: str) -> Corpus:
    return Corpus(
        name=name,
        source_language="en",
        target_language="de",
        licence=licence,
        train=tuple(map(_local, stems)),
        valid=sacrebleu_set("wmt13", "en-de"),
        test=sacrebleu_set("wmt14/full", "en-de"),
        pairs=pairs,
    )


_WITHOUT_TATOEBA = tuple(stem for stem in _SHA256 if stem != _TATOEBA)

NEWS_EN_DE = _news(
    "news_en_de",
    "research use (WMT); Europarl has no known restrictions",
    60_000,
    *_WITHOUT_TATOEBA,
)
NEWS_TATOEBA_EN_DE = _news(
    "news_tatoeba_en_de",
    "research use (WMT); Europarl has no known restrictions; Tatoeba is CC BY 2.0 FR",
    224_000,
    *_SHA256,
)
