"""Members of archives: the right bytes, and nothing else is written or followed."""

from __future__ import annotations

import io
import lzma
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer.data.fetch.archives import unpack_members, unpacked_members
from transformer.errors import InputError

ENGLISH = "".join(f"number {i * i}\n" for i in range(5_003)).encode()


def write_archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    """A tar compressed according to the suffix of ``path``."""
    mode = {".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as tar:  # pyright: ignore[reportCallIssue,reportArgumentType]
        for info, content in entries:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def member(archive: Path, name: str, folder: Path) -> Path:
    return unpack_members(archive, [name], folder)[name]


def files_of(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    names = (str(path.relative_to(folder)) for path in found if path.suffix != ".verified")
    return sorted(names)


@pytest.mark.parametrize("ending", ["tgz", "tar", "tar.bz2", "tar.xz"])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_only_the_requested_member_is_unpacked(tmp_path: Path, ending: str, prefix: str) -> None:
    archive = write_archive(
        tmp_path / f"a.{ending}",
        (entry("training"), b""),
        (entry(f"{prefix}training/x.de"), b"eins\n"),
        (entry(f"{prefix}training/x.en"), ENGLISH),
        (entry("/etc/evil"), b"evil"),
        (entry("../evil"), b"evil"),
    )
    path = member(archive, "training/x.en", tmp_path / "out")
    assert path.read_bytes() == ENGLISH
    assert path.suffix == ".en", "its ending says how to unpack it"
    assert files_of(tmp_path / "out") == ["training/x.en"]


def test_a_member_is_unpacked_once(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry("x.en"), ENGLISH))
    first = member(archive, "x.en", tmp_path / "out")
    archive.unlink()
    assert member(archive, "x.en", tmp_path / "out") == first


def test_the_members_of_an_archive_are_read_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(
        tmp_path / "a.tar",
        (entry("x.de"), b"eins\n"), (entry("y.de"), b"acht\n"), (entry("x.en.gz"), b"packed"),
    )  # fmt: skip
    names = ["x.en.gz", "x.de"]
    assert unpacked_members(names, tmp_path / "out") is None
    opened: list[str] = []
    with monkeypatch.context() as counting:
        real = tarfile.open
        counting.setattr(tarfile, "open", lambda **given: opened.append("once") or real(**given))
        paths = unpack_members(archive, names, tmp_path / "out")
    assert opened == ["once"]
    assert [paths[name].read_bytes() for name in names] == [b"packed", b"eins\n"]
    assert files_of(tmp_path / "out") == ["x.de", "x.en.gz"]
    assert unpacked_members(names, tmp_path / "out") == paths
    assert unpacked_members([*names, "y.de"], tmp_path / "out") is None


def test_only_altered_members_are_unpacked_again(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry("x.en"), ENGLISH), (entry("x.de"), b"ja\n"))
    paths = unpack_members(archive, ["x.en", "x.de"], tmp_path / "out")
    paths["x.en"].write_bytes(ENGLISH[:-1])
    untouched = paths["x.de"].stat()
    assert unpack_members(archive, ["x.en", "x.de"], tmp_path / "out") == paths
    assert paths["x.en"].read_bytes() == ENGLISH
    assert paths["x.de"].stat().st_mtime_ns == untouched.st_mtime_ns


@pytest.mark.parametrize("name", ["../x.en", "/x.en", "a/../../x.en"])
def test_a_member_name_outside_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry(name), ENGLISH))
    with pytest.raises(InputError, match="points outside"):
        member(archive, name, tmp_path / "out")
    assert not (tmp_path / "x.en").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_link_or_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry("x.en", kind, "/etc/passwd"), b""))
    with pytest.raises(InputError, match=r"x\.en is a link or a device"):
        member(archive, "x.en", tmp_path / "out")
    assert files_of(tmp_path / "out") == []


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry("x.de"), b"eins\n"))
    with pytest.raises(InputError, match=r"a\.tgz has no member x\.en"):
        member(archive, "x.en", tmp_path / "out")


@pytest.mark.parametrize("ending", ["tgz", "tar", "tar.xz"])
def test_a_truncated_archive_is_named_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    noise = lzma.compress(bytes(i * i % 251 for i in range(90_001)))
    archive = write_archive(tmp_path / f"a.{ending}", (entry("x.en"), ENGLISH + noise))
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(InputError, match=f"a.{ending} cannot be read") as error:
        member(archive, "x.en", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert files_of(tmp_path / "out") == []


@pytest.mark.parametrize("content", [b"<html>no</html>" * 99, b""])
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tgz (cannot be read|has no member)"):
        member(tmp_path / "a.tgz", "x.en", tmp_path / "out")


@pytest.mark.parametrize("wanted", ["x.en", "y.en"], ids=["wanted", "before the wanted one"])
def test_a_decompression_bomb_is_refused_without_inflating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    zeros = (entry("x.en"), b"\0" * 10_000_000)
    archive = write_archive(tmp_path / "a.tgz", zeros, (entry("y.en"), ENGLISH))
    monkeypatch.setattr(tarfile.TarFile, "extractfile", lambda *_: pytest.fail("inflated it"))
    with pytest.raises(
        InputError, match=r"to grow to 100005.. bytes by its member x\.en, more than"
    ):
        member(archive, wanted, tmp_path / "out")
    assert files_of(tmp_path / "out") == []


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_archive(tmp_path / "a.tgz", (entry("x.en"), ENGLISH))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7))
    with pytest.raises(InputError, match=r"x\.en of a\.tgz needs"):
        member(archive, "x.en", tmp_path / "out")
    assert files_of(tmp_path / "out") == []
