"""The corpora that this project knows."""

from __future__ import annotations

from dataclasses import replace

from transformer.corpus import Corpus, ParallelText, TextFile


def _builtin(split: str) -> ParallelText:
    return ParallelText(
        source=TextFile(location=f"builtin:cldr_en_de/{split}.en"),
        target=TextFile(location=f"builtin:cldr_en_de/{split}.de"),
    )


CLDR_EN_DE = Corpus(
    name="cldr_en_de",
    source_language="en",
    target_language="de",
    licence="Unicode License v3",
    train=(_builtin("train"),),
    valid=_builtin("valid"),
    test=_builtin("test"),
)
"""Phrases made from Unicode's locale data: no download, learned in a minute."""

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K_SHA256 = {
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def _multi30k(split: str, target: str) -> ParallelText:
    def side(language: str) -> TextFile:
        name = f"{split}.{language}"
        return TextFile(location=f"{_MULTI30K}/{name}.gz", sha256=_MULTI30K_SHA256[name])

    return ParallelText(source=side("en"), target=side(target))


def _multi30k_corpus(target: str) -> Corpus:
    return Corpus(
        name=f"multi30k_en_{target}",
        source_language="en",
        target_language=target,
        licence="CC BY-NC-SA 4.0 (captions); research use",
        train=(_multi30k("train", target),),
        valid=_multi30k("val", target),
        test=_multi30k("test_2016_flickr", target),
        pairs=29_000,
    )


MULTI30K_EN_DE = _multi30k_corpus("de")
"""Image captions, 29,000 pairs (Elliott et al. 2016), for research use."""

MULTI30K_EN_FR = _multi30k_corpus("fr")
"""The same captions in English and French."""


_EUROPARL = TextFile(
    location="https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    sha256="0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    bytes=657_632_379,
)
_COMMON_CRAWL = TextFile(
    location="https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    sha256="c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    bytes=918_311_367,
)
_NEWS_COMMENTARY = TextFile(
    location="https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    sha256="cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    bytes=80_418_416,
)
_UN = TextFile(
    location="https://www.statmt.org/wmt13/training-parallel-un.tgz",
    sha256="29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    bytes=2_365_634_246,
)
_TEN_TO_THE_NINTH = TextFile(
    location="https://www.statmt.org/wmt10/training-giga-fren.tar",
    sha256="3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    bytes=2_595_102_720,
)


def _members(archive: TextFile, stem: str, target: str, packing: str = "") -> ParallelText:
    return ParallelText(
        source=replace(archive, member=f"{stem}.en{packing}"),
        target=replace(archive, member=f"{stem}.{target}{packing}"),
    )


def sacrebleu_set(name: str, language_pair: str) -> ParallelText:
    """A test set that sacreBLEU knows, such as ``wmt14/full`` for ``en-de``."""
    source, reference = (
        TextFile(location=f"sacrebleu:{name}/{language_pair}/{side}")
        for side in ("source", "reference")
    )
    return ParallelText(source=source, target=reference)


def _wmt14(name: str, target: str, pairs: int, *train: ParallelText) -> Corpus:
    """A corpus with the paper's sets: newstest2013 for validation, newstest2014 for testing."""
    return Corpus(
        name=name,
        source_language="en",
        target_language=target,
        licence="research use (WMT); Europarl has no known restrictions",
        train=train,
        valid=sacrebleu_set("wmt13", f"en-{target}"),
        test=sacrebleu_set("wmt14/full", f"en-{target}"),
        pairs=pairs,
    )


# The numbers of pairs are those before cleaning.
WMT14_EN_DE = _wmt14(
    "wmt14_en_de",
    "de",
    4_508_785,
    _members(_EUROPARL, "training/europarl-v7.de-en", "de"),
    _members(_COMMON_CRAWL, "commoncrawl.de-en", "de"),
    _members(_NEWS_COMMENTARY, "training/news-commentary-v9.de-en", "de"),
)
"""The paper's corpus (section 5.1), for research use."""

WMT14_EN_FR = _wmt14(
    "wmt14_en_fr",
    "fr",
    40_836_715,
    _members(_EUROPARL, "training/europarl-v7.fr-en", "fr"),
    _members(_COMMON_CRAWL, "commoncrawl.fr-en", "fr"),
    _members(_NEWS_COMMENTARY, "training/news-commentary-v9.fr-en", "fr"),
    _members(_UN, "un/undoc.2000.fr-en", "fr"),
    _members(_TEN_TO_THE_NINTH, "giga-fren.release2.fixed", "fr", packing=".gz"),
)
"""The paper's other corpus (section 5.1), for research use."""

WMT14_EN_DE_SMALL = _wmt14(
    "wmt14_en_de_small",
    "de",
    200_000,
    _members(_NEWS_COMMENTARY, "training/news-commentary-v9.de-en", "de"),
)
"""News Commentary alone, for a first try on real news: 80 MB."""
