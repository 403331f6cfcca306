"""Which changes of a user's files are noticed, and which train nothing anew."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from transformer.errors import InputError
from transformer.imported_files import has_changed_since, places_of, source_record, with_imported
from transformer.variant import (
    FILES_VARIABLE,
    current_name,
    load_variant,
    source_file,
    variant_name,
)

CASES = Path(__file__).parents[2] / "shared" / "cases" / "h17_digest" / "changes.json"
CHANGES = json.loads(CASES.read_text()) if CASES.is_file() else []
FILES = {
    "v.py": """
\"\"\"Mine.\"\"\"
import sys
from pathlib import Path

from ablations.tables import BASE, Table, row
from transformer import Transformer

sys.path.insert(0, str(Path(__file__).parent / "lib"))
from far import S


class V(Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.slope = S


TABLE = Table(name="mine", title="", base=BASE, rows=(row("base"), row("v", model=V)))
""",
    "lib/far.py": "S = 1\n\n\ndef f():\n    return 1\n",
}


@pytest.fixture(autouse=True)
def _imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(FILES_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(nn.Linear, "zz", 0, raising=False)  # as a case sets it
    of_tests = tmp_path.parents[1]
    for name, module in [*sys.modules.items()]:  # of files that other tests wrote
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(of_tests):
            del sys.modules[name]
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        del sys.modules[name]


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def begin(folder: Path, files: Mapping[str, str] = FILES) -> tuple[str, dict[str, Any]]:
    """The name of ``V`` in ``v.py``, and the record of a run that has just imported it."""
    write(folder, files)
    name = variant_name(f"{folder / 'v.py'}:V")
    load_variant(name)
    return name, source_record([name])


@pytest.mark.parametrize("case", CHANGES, ids=[each["change"] for each in CHANGES])
def test_each_change_of_what_a_class_computes_is_noticed(
    case: dict[str, Any], tmp_path: Path
) -> None:
    name, record = begin(tmp_path, case["before"])
    assert current_name(name) == name and not has_changed_since(record)
    write(tmp_path, case["after"])
    assert (current_name(name) != name) != has_changed_since(record)


def test_a_change_in_a_folder_on_the_path_is_of_the_wide_record_alone(tmp_path: Path) -> None:
    name, record = begin(tmp_path)
    assert json.dumps(record).count(str(tmp_path)) == 0
    write(tmp_path, {"lib/far.py": FILES["lib/far.py"].replace("S = 1", "S = 2")})
    assert has_changed_since(record) and current_name(name) == name
    write(tmp_path, {"lib/far.py": "S = ("})
    assert has_changed_since(record)
    (tmp_path / "lib" / "far.py").unlink()
    assert not has_changed_since(record)  # as on another machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "is_noticed"),
    [
        ("v.py", 'row("base")', 'row("base"), row("other", d_ff=7)', False),
        ("v.py", "TABLE", "class Other(Transformer):\n    pass\n\n\nTABLE", False),
        ("v.py", "import sys\n", "import math\nimport sys\n", False),
        ("v.py", "import BASE", "import BASE, scale", False),
        ("v.py", "TABLE", "# why\nTABLE", False),
        ("v.py", "Mine.", "Yours.", False),
        ("v.py", "TABLE", "if __name__ == '__main__':\n    print(1)\nTABLE", False),
        ("v.py", "TABLE", "LEVEL = 1\nTABLE", True),
        ("v.py", "TABLE", "class Other(Transformer):\n    x = vars()\nTABLE", True),
        ("lib/far.py", "def f", "# why\ndef f", False),
        ("lib/far.py", "def f", 'def g():\n    """Why."""\n\n\ndef f', True),
        ("lib/far.py", "return 1", "return 2", True),
    ],
)
def test_what_is_noticed_although_the_class_is_as_it_was(
    file: str, old: str, new: str, is_noticed: bool, tmp_path: Path
) -> None:
    name, record = begin(tmp_path)
    assert old in FILES[file]
    write(tmp_path, {file: FILES[file].replace(old, new)})
    assert has_changed_since(record) == is_noticed and current_name(name) == name


def test_a_file_that_is_imported_while_a_run_trains_is_added_and_the_others_stay(
    tmp_path: Path,
) -> None:
    _, record = begin(tmp_path, {**FILES, "lib/late.py": "T = 1\n"})
    assert "lib/late.py" not in record["files"]["v"]
    write(tmp_path, {"lib/far.py": "S = 3\n", "v.py": "class ("})
    __import__("late")
    more = with_imported(record)
    assert more != record
    assert more["files"]["v"].pop("lib/late.py") == "T = 1\n"
    assert more == record
    assert with_imported({"v.py": "of an older version"}) == {"v.py": "of an older version"}


def test_a_file_elsewhere_goes_by_its_place_next_to_the_class_or_by_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, near, far = tmp_path / "a/b/mine", tmp_path / "a/near", tmp_path / "far"
    write(near, {"close.py": "S = 1\n"})
    write(far, {"distant/__init__.py": "", "distant/deep.py": "S = 1\n", "new/deep.py": "S = 1\n"})
    monkeypatch.syspath_prepend(str(near))
    monkeypatch.syspath_prepend(str(far))
    code = FILES["v.py"].replace("from far", "import close\nfrom distant.deep")
    _, record = begin(mine, {"v.py": code})
    files = record["files"]["v"]
    assert {"v.py", "../../near/close.py", "distant.deep"} <= files.keys()
    assert not has_changed_since(record)
    for path in (near / "close.py", far / "distant/deep.py"):
        path.write_text("S = 2\n")
        assert has_changed_since(record)
        path.write_text("S = 1\n")
    monkeypatch.setattr(sys, "path", [])
    (far / "distant/deep.py").write_text("S = 2\n")
    assert not has_changed_since(record)


def test_only_a_record_of_a_users_class_that_is_known_here_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_record(["transformer.variants.rotary:RotaryTransformer@0"]) == {}
    name, record = begin(tmp_path)
    both = source_record([name, "transformer.variants.rotary:RotaryTransformer@0"])
    assert both == record
    write(tmp_path, {"lib/far.py": "S = 2\n"})
    assert has_changed_since(record)
    assert not has_changed_since(record | {"rule": 0})
    assert not has_changed_since(record["files"]["v"])  # as earlier versions wrote it
    write(tmp_path, {"v.py": FILES["v.py"].replace("slope", "other")})
    assert not has_changed_since(record)  # but its row is stale
    write(tmp_path, FILES | {"lib/far.py": "S = 2\n"})
    places = places_of(record)
    monkeypatch.setenv(FILES_VARIABLE, "")
    assert not has_changed_since(record)
    assert has_changed_since(record, places)
    with pytest.raises(InputError):
        source_file(name)
    (tmp_path / "link.py").symlink_to(tmp_path / "v.py")
    (tmp_path / "v.txt").write_text(FILES["v.py"])
    os.mkfifo(tmp_path / "pipe.py")
    for other in ("link.py", "v.txt", "pipe.py", "lib", "lib/far.py", "none.py", "\0.py"):
        assert not has_changed_since(record, {"v": str(tmp_path / other)})


@pytest.mark.parametrize(
    "strange",
    [
        {"classes": "V"},
        {"classes": [3]},
        {"classes": ["w:V@0"]},
        {"files": {"v": ["v.py"]}},
        {"files": {"v": {"v.py": 3}}},
        {"files": {"v": {"../../../x.py": "S = 1", "/etc/x.py": "", "a..b": "", "\0.py": ""}}},
        {"files": {"v": {"lib/far.py": "-" * 100_000 + "1"}}},
    ],
)
def test_a_strange_record_of_somebody_else_is_no_error(
    strange: dict[str, Any], tmp_path: Path
) -> None:
    _, record = begin(tmp_path)
    assert has_changed_since(record | strange) in (True, False)


def test_an_installed_class_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"pack/__init__.py": "raise SystemExit", "pack/deep/mod.py": FILES["v.py"]})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("transformer.variant.is_installed", {"pack.deep.mod", "pack"}.__contains__)
    assert variant_name("pack.deep.mod:V").startswith("pack.deep.mod:V@")
    assert "pack" not in sys.modules


def test_large_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"lib/far.py": "S = 1\n" + "#" * 1_000_000})
    _, record = begin(tmp_path, {"v.py": FILES["v.py"]})
    assert record["files"]["v"]["v.py"] == FILES["v.py"]
    assert "lib/far.py" not in record["files"]["v"]


def test_classes_of_several_files_are_in_one_record(tmp_path: Path) -> None:
    name, _ = begin(tmp_path / "one")
    write(
        tmp_path / "two", {"w.py": "from transformer import Transformer\nclass W(Transformer): 1"}
    )
    other = variant_name(f"{tmp_path / 'two' / 'w.py'}:W")
    load_variant(other)
    record = source_record([other, name])
    assert record["classes"] == sorted([name, other])
    assert not has_changed_since(record)
    write(tmp_path, {"one/lib/far.py": "S = 2\n"})
    assert has_changed_since(record)
