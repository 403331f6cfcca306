"""Runs that ended as lines of a collection, with an archive of their larger files."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ablations import collect
from ablations.dashboard.page import Reader
from ablations.folder import SearchFolder, open_folder
from ablations.runs.reuse import Earlier, take_renamed
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.records.checksums import record_checksums
from experiments.records.collection import Collection
from experiments.records.line import ARCHIVES, RUNS_FILE
from experiments.records.ownership import claim
from experiments.records.result import load_result, save_result
from experiments.records.source import record_source
from tests.ablations.samples import SMALL_TABLE, TINY, finish, leave_curve, small_plan
from tests.ablations.search.samples import bowl, small_search, work_on
from transformer.errors import InputError
from transformer.files import write_json
from transformer.kernels.threads import map_on_threads
from transformer.variant import variant_name

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
BASE, NARROW = Cell("base", 1), Cell("narrow", 1)


def finish_all(root: Path, *cells: Cell) -> Path:
    """A table whose ``cells`` have finished, with all files that a run leaves."""
    plan = claim_plan(root, small_plan())
    for number, cell in enumerate(cells):
        finish(root, cell, 5.0 + number, 20.0)
        directory = cell.directory(root)
        claim(directory, plan.experiment(cell))
        leave_curve(directory, {200: 9.0, 400: float("inf")})
        write_json(directory / "data.json", {"sources": [], "files": {}, "digest": "0" * 16})
        (directory / "valid.hypotheses.txt").write_text(f"ein Haus {cell}\n" * 99)
        (directory / "valid-averaged.hypotheses.txt").write_text("a house\n")
        sample = {"chrf": 1.0, "source": "a", "reference": "b\u20ac", "translation": "c"}
        write_json(directory / "valid.samples.json", {"samples": [sample]})
        found = load_result(directory)
        assert found is not None
        save_result(directory, record_checksums(directory, found))
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shared_files(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".plan.lock"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return finish_all(tmp_path / "table", BASE, NARROW)


@pytest.fixture
def collected(table: Path, tmp_path: Path) -> Path:
    open_folder(table).collect(tmp_path / "collected")
    return tmp_path / "collected"


def test_nothing_is_lost_but_translations_of_averaged_checkpoints(
    table: Path, collected: Path
) -> None:
    folder, expected = open_folder(collected), dict[str, bytes]()
    for run in folder.runs():
        expected = contents(table / run.name)
        del expected["valid-averaged.hypotheses.txt"]
        assert contents(run.files) == expected
        assert run.experiment == open_folder(table).read(run.name).experiment
        assert run.curve == {200: 9.0, 400: float("inf")} and run.samples[0].reference == "b\u20ac"
    assert folder.records() == open_folder(table).records()
    assert folder.curves() == open_folder(table).curves() and folder.left == []
    files = [path for path, problem in folder.verify() if not problem]
    (archive,) = collected.glob(ARCHIVES)
    (data,) = collected.glob("data-*.json")
    assert len(files) == 2 * len(expected) + 2 == len(list(folder.verify()))
    assert shared_files(collected) == {"table.json", RUNS_FILE, archive.name, data.name}


def test_it_can_be_collected_and_continued_from(collected: Path, tmp_path: Path) -> None:
    open_folder(collected).collect(tmp_path / "again")
    assert contents_of_collection(tmp_path / "again") == contents_of_collection(collected)
    plan = claim_plan(tmp_path / "runs", load_plan(collected))
    assert Earlier(collected, plan).copy(tmp_path / "runs") == [str(BASE), str(NARROW)]
    (problems,) = {problem for _, problem in open_folder(tmp_path / "runs").verify()}
    assert problems == ""


def test_it_is_shown_as_a_folder_of_runs_is(collected: Path) -> None:
    reading = Reader(collected).read()
    assert reading.status.counts == {"done": 2} and reading.status.is_over
    assert list(reading.figures) == ["curves"]
    assert [row for row, _ in reading.grid] == ["base", "narrow"]


def contents_of_collection(root: Path) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in shared_files(root)}


def test_shards_give_the_same_bytes_in_any_order(collected: Path, tmp_path: Path) -> None:
    for name, cells in (("one", [NARROW]), ("two", [BASE])):
        shard = finish_all(tmp_path / name, *cells)
        for cell in cells:
            write_all(collected, shard, cell)
        assert open_folder(shard).collect(tmp_path / "both") == list(map(str, cells))
    assert contents_of_collection(tmp_path / "both") == contents_of_collection(collected)
    assert len(list((tmp_path / "both").glob(ARCHIVES))) == 1


def write_all(collected: Path, shard: Path, cell: Cell) -> None:
    """Give a run the very files that it has in the collection."""
    for name, content in contents(open_folder(collected).read(str(cell)).files).items():
        (cell.directory(shard) / name).write_bytes(content)


@pytest.mark.parametrize("written", ["files-", RUNS_FILE])
def test_a_kill_leaves_the_collection_as_it_was(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    open_folder(finish_all(tmp_path / "one", BASE)).collect(target)
    other, write = finish_all(tmp_path / "two", NARROW), collect.write_atomically

    def kill(path: Path, content: str | bytes) -> None:
        if path.name.startswith(written):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(collect, "write_atomically", kill)
    with pytest.raises(KeyboardInterrupt):
        open_folder(other).collect(target)
    found = open_folder(target)
    assert [run.name for run in found.look() if run.result] == [str(BASE)]
    assert not any(problem for _, problem in found.verify())
    monkeypatch.undo()
    assert open_folder(other).collect(target) == [str(NARROW)]
    assert len(list(target.glob(ARCHIVES))) == 1
    assert not any(problem for _, problem in open_folder(target).verify())


def edit(root: Path, old: str, new: str) -> None:
    text = (root / RUNS_FILE).read_text()
    assert old in text
    (root / RUNS_FILE).write_text(text.replace(old, new))


@pytest.mark.parametrize("old", ['"bleu": 20.0', '"d_ff": 128', '"b\u20ac"'])
def test_an_edited_line_is_noticed(old: str, collected: Path) -> None:
    edit(collected, old, old.replace("2", "3").replace("b", "d", 1 if "bleu" not in old else 0))
    changed = [run for run in open_folder(collected).runs() if run.problem]
    assert changed and all(run.result is None for run in changed)
    assert f"in {collected / RUNS_FILE} changed since the run finished" in changed[0].problem
    assert any(problem for _, problem in open_folder(collected).verify())


def test_an_edited_curve_is_found_by_verify(collected: Path) -> None:
    edit(collected, '"200": 9.0', '"200": 1.0')
    found = [(path, problem) for path, problem in open_folder(collected).verify() if problem]
    problem = "its curve in runs.jsonl changed since the run finished"
    assert found == [(cell.directory(collected), problem) for cell in (BASE, NARROW)]


@pytest.mark.parametrize("pattern", [ARCHIVES, "data-*.json"])
def test_a_damaged_or_missing_file_is_named(pattern: str, collected: Path) -> None:
    (path,) = collected.glob(pattern)
    path.write_bytes(path.read_bytes()[:-9])
    assert all(f"{path} changed" in run.problem for run in open_folder(collected).runs())
    path.unlink()
    assert all(f"{path} missing" in run.problem for run in open_folder(collected).runs())
    assert any(problem for _, problem in open_folder(collected).verify())


@pytest.mark.parametrize("line", ["", "{", "[]", '{"name": "../x"}', '{"name": "a", "more": 1}'])
def test_a_damaged_line_is_named(line: str, collected: Path) -> None:
    path = collected / RUNS_FILE
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match=rf"{RUNS_FILE}, line 3 "):
        open_folder(collected).runs()


def test_only_files_that_lines_name_are_unpacked(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"x" * 99
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:xz") as files:
        for name in ("../escaped", "/tmp/escaped", "base/seed-1/more", "base/seed-1/metrics.csv"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            files.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("base/seed-1/valid.hypotheses.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        files.addfile(link)
    replace_archive(collected, archive.getvalue())
    with monkeypatch.context() as limited:
        limited.setattr("experiments.records.collection._MOST_UNPACKED", 0)
        with pytest.raises(InputError, match=r"tar\.xz has more than 0 times its size"):
            _ = Collection(collected).unpacked
    found = Collection(collected)
    assert (found.unpacked / "base/seed-1/metrics.csv").read_bytes() == content
    names = {path.name for path in (found.unpacked / "base/seed-1").iterdir()}
    assert "more" not in names and "valid.hypotheses.txt" not in names
    assert not (found.unpacked.parent / "escaped").exists()
    replace_archive(collected, b"\xfd7zXZ\0 and no more")
    with pytest.raises(InputError, match=r"tar\.xz cannot be unpacked"):
        _ = Collection(collected).unpacked


def test_threads_share_what_one_of_them_unpacks(
    collected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, write = threading.Event(), Collection._write_files

    def slowly(self: Collection, into: Path) -> None:
        assert not writing.is_set()
        writing.set()
        time.sleep(0.2)
        write(self, into)

    monkeypatch.setattr(Collection, "_write_files", slowly)
    folders = map_on_threads(lambda _: Collection(collected).unpacked, range(3), threads=3)
    (folder,) = {*folders}
    assert (folder / "base/seed-1/metrics.csv").is_file()


def replace_archive(root: Path, content: bytes) -> None:
    """Put another archive in the place of that of a collection, as a stranger could."""
    (old,) = root.glob(ARCHIVES)
    digest = json.loads((root / RUNS_FILE).read_text().splitlines()[0])["archive"]
    new = collect.hashlib.sha256(content).hexdigest()
    old.unlink()
    (root / collect.archive_name(new)).write_bytes(content)
    edit(root, digest, new)


def test_what_cannot_be_read_is_kept_as_it_is(table: Path, tmp_path: Path) -> None:
    samples = BASE.directory(table) / "test.samples.json"
    samples.write_bytes(b"\xff")
    config = BASE.directory(table) / "config.json"
    config.write_text(config.read_text().replace("\n", "\n\n"))  # the same in another form
    for name in ("SHA256SUMS", "result.json"):
        path = BASE.directory(table) / name
        path.unlink() if name == "SHA256SUMS" else path.write_text(
            path.read_text().replace("files_digest", "other")
        )
    open_folder(table).collect(tmp_path / "collected")
    run = open_folder(tmp_path / "collected").runs()[0]
    assert run.name == str(BASE) and not run.problem
    assert contents(run.files)["test.samples.json"] == b"\xff"
    assert contents(run.files)["config.json"] == config.read_bytes()
    edit(tmp_path / "collected", '"d_ff": 256', '"d_ff": 128')
    assert open_folder(tmp_path / "collected").runs()[0].problem


def test_the_confirmation_of_a_search_is_in_its_lines(tmp_path: Path) -> None:
    root, target = tmp_path / "search", tmp_path / "target"
    small_search(root, trials=3)
    work_on(root, bowl)
    finish_all(root / "confirm", BASE, NARROW)
    names = open_folder(root).collect(target)
    lines = [json.loads(line)["name"] for line in (target / RUNS_FILE).read_text().splitlines()]
    assert sorted(names) == lines and lines[0] == "confirm/base/seed-1"
    assert shared_files(target / "confirm") == {"table.json"}
    found = open_folder(target)
    assert isinstance(found, SearchFolder) and found.confirmation is not None
    assert found.trials() == SearchFolder(root).trials()
    of_table = [(run.name, run.result and run.result.bleu) for run in found.confirmation.runs()]
    assert of_table == [(str(BASE), 20.0), (str(NARROW), 20.0)]
    assert open_folder(target / "confirm").left == []
    assert not any(problem for _, problem in found.verify())
    assert open_folder(root).collect(target) == []


def test_of_a_renamed_run_the_folder_is_moved_and_not_an_older_line(collected: Path) -> None:
    finish_all(collected, NARROW)
    base, narrow, *_ = SMALL_TABLE.rows
    renamed = replace(SMALL_TABLE, rows=(base, replace(narrow, name="thin")))
    claim_plan(collected, make_plan(renamed, TINY, renamed.rows, (1,)))
    assert take_renamed(collected) == 1
    assert load_result(collected / "thin" / "seed-1") and not (collected / "narrow").exists()
    assert str(NARROW) in Collection(collected).lines
    assert take_renamed(collected) == 0


def test_a_line_has_the_source_of_the_users_class(tmp_path: Path) -> None:
    root = finish_all(tmp_path / "table", BASE)
    (tmp_path / "parts.py").write_text("WIDTH = 3\n")
    file = tmp_path / "idea.py"
    file.write_text(
        "from parts import WIDTH\nfrom transformer import Transformer\n\n\n"
        "class Idea(Transformer):\n    width = WIDTH  # why\n"
    )
    record_source(BASE.directory(root), [name := variant_name(f"{file}:Idea")])
    open_folder(root).collect(tmp_path / "collected")
    line = json.loads((tmp_path / "collected" / RUNS_FILE).read_text())
    assert line["source"]["classes"] == [name]
    near = {"idea.py": file.read_text(), "parts.py": "WIDTH = 3\n"}
    assert near.items() <= line["source"]["files"]["idea"].items()
    record_source(NARROW.directory(root), ["transformer.variants.rotary:RotaryTransformer@0"])
    assert not NARROW.directory(root).exists()


@pytest.mark.slow
def test_committed_results_are_as_they_were_collected() -> None:
    roots = sorted(path.parent for path in RESULTS.glob(f"*/{RUNS_FILE}"))
    assert len(roots) == 22
    for root in roots:
        assert not [path for path, problem in open_folder(root).verify() if problem]


def test_each_committed_result_names_a_clean_commit_of_the_history() -> None:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout

    try:
        is_shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone")
    if is_shallow:
        pytest.skip("a shallow clone has no history")
    history = {commit[:12] for commit in git("rev-list", "HEAD").split()}
    paths = [*RESULTS.glob(f"*/{RUNS_FILE}")]
    assert paths
    for path in paths:
        for run in Collection(path.parent).lines.values():
            if run.result is not None:
                assert run.result["commit"] in history, (path, run.name)
