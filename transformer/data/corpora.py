"""The declared corpora, as data, and corpora made of a user's own files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from transformer.config import Corpus, ParallelText, TextFile
from transformer.errors import InputError

_PACKINGS = ("", ".gz", ".xz", ".bz2")


def _builtin(split: str) -> ParallelText:
    return ParallelText(
        source=TextFile(location=f"builtin:cldr_en_de/{split}.en"),
        target=TextFile(location=f"builtin:cldr_en_de/{split}.de"),
    )


# Phrases written from Unicode's locale data: needs no download, is learned in a minute.
CLDR_EN_DE = Corpus(
    name="cldr_en_de",
    source_language="en",
    target_language="de",
    licence="Unicode License v3",
    train=(_builtin("train"),),
    valid=_builtin("valid"),
    test=_builtin("test"),
)

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
    )


# Captions of pictures, 29,000 pairs (Elliott et al. 2016).
MULTI30K_EN_DE = _multi30k_corpus("de")
MULTI30K_EN_FR = _multi30k_corpus("fr")


def _archive(url: str, sha256: str, stem: str) -> ParallelText:
    def side(language: str) -> TextFile:
        return TextFile(location=f"https://{url}", sha256=sha256, member=f"{stem}.{language}")

    return ParallelText(source=side("en"), target=side("de"))


# The paper's (section 5.1), with newstest2013 to validate on.
WMT14_EN_DE = Corpus(
    name="wmt14_en_de",
    source_language="en",
    target_language="de",
    licence="research use (WMT); Europarl has no known restrictions",
    train=(
        _archive(
            "www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
            "training/europarl-v7.de-en",
        ),
        _archive(
            "www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
            "commoncrawl.de-en",
        ),
        _archive(
            "www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
            "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
            "training/news-commentary-v9.de-en",
        ),
    ),
    valid=_archive(
        "data.statmt.org/wmt19/translation-task/dev.tgz",
        "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
        "dev/newstest2013",
    ),
)


def files_corpus(
    name: str,
    *,
    languages: tuple[str, str],
    train: Sequence[tuple[str | Path, str | Path]],
    valid: tuple[str | Path, str | Path],
    test: tuple[str | Path, str | Path] | None = None,
) -> Corpus:
    """A corpus of line-aligned files, each pair source first; plain or .gz, .xz, .bz2."""

    def pair(files: tuple[str | Path, str | Path]) -> ParallelText:
        source, target = (TextFile(location=str(Path(f).expanduser().resolve())) for f in files)
        return ParallelText(source=source, target=target)

    return Corpus(
        name=name,
        source_language=languages[0],
        target_language=languages[1],
        licence="the user's own",
        train=tuple(pair(files) for files in train),
        valid=pair(valid),
        test=None if test is None else pair(test),
    )


def folder_corpus(folder: Path, languages: tuple[str, str] | None = None) -> Corpus:
    """The corpus in a folder of files ``train.en``, ``train.de``, ``valid.en`` and so on.

    Any may end in .gz, .xz or .bz2; ``test`` may be missing. Without ``languages`` the folder
    must hold training text of two, and English is the source where it is one of them.

    Raises:
        InputError: if a file is missing, or the languages are not plain.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    source, target = languages or _two_languages(folder)

    def pair(split: str) -> tuple[Path, Path]:
        return _find(folder, f"{split}.{source}"), _find(folder, f"{split}.{target}")

    has_test = any(folder.glob("test.*"))
    return files_corpus(
        folder.resolve().name,
        languages=(source, target),
        train=[pair("train")],
        valid=pair("valid"),
        test=pair("test") if has_test else None,
    )


def _two_languages(folder: Path) -> tuple[str, str]:
    names = {re.sub(r"\.(gz|xz|bz2)$", "", path.name) for path in folder.glob("train.*")}
    languages = sorted(
        {name.removeprefix("train.") for name in names}, key=lambda x: (x != "en", x)
    )
    if len(languages) != 2:
        found = ", ".join(languages) or "none"
        raise InputError(
            f"{folder} must hold train.SOURCE and train.TARGET for two languages (found: {found}); "
            "name them as in files:FOLDER:de-en"
        )
    return languages[0], languages[1]


def _find(folder: Path, name: str) -> Path:
    for packing in _PACKINGS:
        if (path := folder / (name + packing)).is_file():
            return path
    raise InputError(f"{folder} holds no {name} (plain, .gz, .xz or .bz2)")
