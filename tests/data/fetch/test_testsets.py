"""sacreBLEU's test sets, from its folder or fetched; failures leave nothing behind."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.data.scripted_server import ScriptedServer, other
from tests.samples import archive
from transformer.corpus import TextFile
from transformer.data.fetch import testsets
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.testsets import sacrebleu_text
from transformer.data.fetch.texts import fetch
from transformer.errors import InputError

GIVEN = os.environ.get("SACREBLEU", "")


def fill(folder: Path, source: str, reference: str) -> None:
    """Write ``wmt14/full`` as sacreBLEU does."""
    (folder / "wmt14" / "full").mkdir(parents=True, exist_ok=True)
    for field, text in (("src", source), ("ref", reference)):
        path = folder / "wmt14" / "full" / f"wmt14_full.en-de.{field}"
        path.write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``SACREBLEU`` folder."""
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    return tmp_path / "sacrebleu"


def kept() -> list[str]:
    """The files in our cache except locks."""
    found = (path for path in cache_directory().rglob("*") if path.is_file())
    return sorted(path.name for path in found if path.suffix != ".lock")


def test_entities_of_a_test_set_are_unescaped(folder: Path) -> None:
    fill(folder, "R&amp;D\u2028&lt;two&gt;\n&quot;three&#39;s &copy\n", "F&amp;E\n&quot;drei\n")
    source, reference = ["R&D <two>", "\"three's &copy"], ["F&E", '"drei']
    assert sacrebleu_text("wmt14/full", "en-de") == (source, reference)
    for side, lines in (("source", source), ("reference", reference)):
        file = TextFile(location=f"sacrebleu:wmt14/full/en-de/{side}")
        assert fetch(file).read_text().splitlines() == lines
    fill(folder, "another\n", "F&amp;E\n")
    assert fetch(TextFile(location="sacrebleu:wmt14/full/en-de/source")).read_text() == "another\n"
    assert len(kept()) == 2


@pytest.mark.parametrize("rest", ["wmt13", "wmt13/en-de", "wmt13/en-de/target", "wmt13/de/source"])
def test_a_malformed_location_is_refused(rest: str) -> None:
    with pytest.raises(InputError, match=f"sacrebleu:{rest} is no side of a test set: write"):
        fetch(TextFile(location=f"sacrebleu:{rest}"))


def sgm(lines: list[str]) -> bytes:
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines))
    return f'<doc docid="a" genre="news" origlang="en">\n{segments}</doc>\n'.encode()


def test_a_wrong_file_from_the_server_is_reported_and_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"en": ["R&amp;D", "two"], "de": ["F&amp;E", "zwei"]}
    served = archive({f"test/newstest2013-src.{x}.sgm": sgm(lines) for x, lines in sides.items()})
    with ScriptedServer(served).running() as server:
        server.script = [other(b"<html>Log in</html>")]
        md5 = hashlib.md5(served).hexdigest()
        address = (
            "from sacrebleu.dataset import DATASETS; wmt13 = DATASETS['wmt13']; "
            f"wmt13.data, wmt13.md5 = ['{server.url}/test.tgz'], ['{md5}']; "
        )
        monkeypatch.setattr(testsets, "_FETCH", address + testsets._FETCH)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(InputError, match=r"cannot fetch wmt13 for en-de.*MD5 sum.*incorrect"):
            sacrebleu_text("wmt13", "en-de")
        assert kept() == []
        expected = (["R&D", "two"], ["F&E", "zwei"])
        assert sacrebleu_text("wmt13", "en-de") == expected
        assert sacrebleu_text("wmt13", "en-de") == expected
        assert len(server.paths) == 2
    assert not folder.exists()


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testsets, "_FETCH", "import time; time.sleep(60)")
    monkeypatch.setattr(testsets, "_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(InputError, match=r"fetch wmt13 for en-de \(no answer in 0\.1 s\); set"):
        sacrebleu_text("wmt13", "en-de")
    assert kept() == []


@pytest.mark.parametrize(
    ("name", "pair", "problem"),
    [
        ("vaild", "en-de", "^unknown split 'vaild': did you mean 'valid'"),
        ("wmt14/full", "en-fi", r"\(.*No such language pair wmt14/full/en-fi\); set SACREBLEU to a "
         r"folder that holds wmt14/full/wmt14_full\.en-fi\.src and \.ref$"),
    ],
)  # fmt: skip
def test_an_unknown_set_is_refused_in_one_line(name: str, pair: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        sacrebleu_text(name, pair)
    assert "\n" not in str(error.value)
    assert kept() == []


@pytest.mark.skipif("SACREBLEU" not in os.environ, reason="needs SACREBLEU with WMT's test sets")
@pytest.mark.parametrize(
    ("name", "lines"), [("wmt13", 3_000), ("wmt14/full", 3_003), ("wmt14", 2_737)]
)
def test_the_papers_test_sets_have_their_lines(
    name: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU", GIVEN)
    source, reference = sacrebleu_text(name, "en-de")
    assert len(source) == len(reference) == lines
