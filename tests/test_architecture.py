"""Imports point down: each room knows only the rooms below it."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import transformer

ROOT = Path(__file__).parents[1]
PACKAGES = ("transformer", "experiments", "ablations")

BELOW = ("transformer", "experiments")
TRAIN = (
    "transformer",
    "experiments.records",
    "experiments.devices",
    "experiments.display",
    "experiments.callbacks",
    "experiments.tracking",
)


def _above(rooms: str) -> tuple[str, ...]:
    """The arrows of a room of ablations, which stands on ``rooms`` there."""
    return (*BELOW, *(f"ablations.{room}" for room in rooms.split()))


# What each may import of the project, besides itself; the longest prefix of a module counts.
ALLOWED = {
    "transformer.errors": (),
    "transformer.corpus": ("transformer.errors", "transformer.files"),
    "transformer.fields": ("transformer.corpus",),
    "transformer.config": (
        "transformer.corpus",
        "transformer.errors",
        "transformer.fields",
    ),
    "transformer.files": ("transformer.errors",),
    "transformer.python_files": ("transformer.errors",),
    "transformer.formats": (),
    "transformer.progress": ("transformer.formats",),
    "transformer.kernels": ("transformer.config",),
    "transformer.model": ("transformer.config", "transformer.kernels"),
    "transformer.data.text": ("transformer.errors",),
    "transformer.parsing": (
        "transformer.corpus",
        "transformer.data.text",
        "transformer.errors",
        "transformer.files",
        "transformer.progress",
    ),
    "transformer.parsing.constraint": (
        "transformer.config",
        "transformer.data.vocabulary",
        "transformer.decoding",
        "transformer.parsing",
    ),
    "transformer.data": (
        "transformer.config",
        "transformer.corpus",
        "transformer.errors",
        "transformer.files",
        "transformer.formats",
        "transformer.parsing",
        "transformer.progress",
    ),
    "transformer.initialisation": (),
    "transformer.sources": ("transformer.errors",),
    "transformer.variant": (
        "transformer.config",
        "transformer.errors",
        "transformer.files",
        "transformer.initialisation",
        "transformer.model",
        "transformer.fields",
        "transformer.python_files",
        "transformer.sources",
    ),
    "transformer.imported_files": (
        "transformer.config",
        "transformer.errors",
        "transformer.files",
        "transformer.sources",
        "transformer.variant",
    ),
    "transformer.parameters": (
        "transformer.errors",
        "transformer.fields",
        "transformer.sources",
        "transformer.variant",
    ),
    "transformer.variants": (
        "transformer.config",
        "transformer.errors",
        "transformer.kernels",
        "transformer.model",
        "transformer.training",
        "transformer.variant",
    ),
    "transformer.training": (
        "transformer.config",
        "transformer.errors",
        "transformer.kernels",
        "transformer.model",
        "transformer.data.batches",
        "transformer.variant",
    ),
    "transformer.decoding": (
        "transformer.config",
        "transformer.errors",
        "transformer.kernels",
        "transformer.model",
    ),
    "transformer.evaluation": (
        "transformer.config",
        "transformer.errors",
        "transformer.model",
        "transformer.data",
        "transformer.training",
        "transformer.decoding",
        "transformer.variant",
    ),
    "transformer.pretrained": (
        "transformer.config",
        "transformer.errors",
        "transformer.files",
        "transformer.model",
        "transformer.data",
        "transformer.variant",
    ),
    "transformer": ("transformer",),
    "experiments.records": ("transformer",),
    "experiments.devices": ("transformer",),
    "experiments.figures": ("transformer",),
    "experiments.display": ("transformer", "experiments.records"),
    "experiments.catalog": ("transformer", "experiments.records"),
    "experiments.callbacks": ("transformer", "experiments.records", "experiments.display"),
    "experiments.tracking": ("transformer", "experiments.records"),
    "experiments.evaluate": (
        "transformer",
        "experiments.records",
        "experiments.devices",
        "experiments.display",
        "experiments.callbacks",
    ),
    "experiments.export": ("transformer", "experiments.records", "experiments.evaluate"),
    "experiments.attention": (
        "transformer",
        "experiments.records",
        "experiments.figures",
        "experiments.evaluate",
    ),
    "experiments.train": TRAIN,
    "experiments.run": (*TRAIN, "experiments.train", "experiments.evaluate.scoring"),
    "experiments.command_line": ("transformer", "experiments.records", "experiments.devices"),
    "experiments": BELOW,
    "ablations.files": ("experiments.records.experiment", "transformer.errors"),
    "ablations.figures": ("experiments",),
    # Declared: nothing below but names of files and configuration.
    "ablations.tables": _above("files"),
    "ablations.search": _above("files tables"),
    # Read, and write as data.
    "ablations.collect": _above("files tables"),
    "ablations.folder": _above("files tables search collect"),
    # Carried out.
    "ablations.runs": _above("files tables search collect folder"),
    # Shown.
    "ablations.costs": _above("files tables folder runs.options runs.shared"),
    "ablations.report": _above("files figures tables search folder runs.search_runs"),
    "ablations.table1": _above("files tables folder report"),
    "ablations.status": _above("tables folder costs runs.lock"),
    "ablations.tracking": _above("files folder report"),
    "ablations.dashboard": _above("files figures tables search folder report status"),
    "ablations.run": _above("files tables search folder runs report status tracking"),
    "ablations.proposals": _above("files tables folder runs costs report.statistics run"),
    "ablations.cli": _above(
        "tables search folder runs costs report table1 status tracking dashboard run proposals"
    ),
    "ablations.__main__": (),
    "ablations": (),
}
# Through which modules a library enters.
DOORS = {
    "sentencepiece": {"transformer.data.vocabulary"},
    "sacrebleu": {
        "transformer.evaluation.bleu",
        "transformer.data.fetch.texts",
        "experiments.evaluate.significance",
    },
    "sacremoses": {"transformer.evaluation.bleu"},
    "wandb": {"experiments.tracking", "ablations.tracking.push"},
    "wandb_workspaces": {"ablations.tracking.workspace"},
    "optuna": {
        "ablations.runs.study",
        "ablations.runs.table_runs",
        "ablations.runs.search_runs",
        "ablations.runs.sampler",
    },
    "ray": {"ablations.runs.on_ray"},
    "cyclopts": {
        "experiments.command_line",
        "experiments.cli",
        "ablations.cli",
        "ablations.runs.options",
    },
    "vl_convert": {"experiments.figures.render"},
    "safetensors": {"transformer.pretrained"},
    "ctranslate2": {"experiments.evaluate.exported", "experiments.export.conversion"},
    "babel": {"transformer.data.languages"},
    "triton": {"transformer.kernels.sentence_attention_triton"},
}


# What opens a file of a run, and the modules of ablations that may: all others are given a Run.
READERS = {
    "experiments.records.attempt.read_attempt",
    "experiments.records.attempt.wandb_id",
    "experiments.records.checksums.check_unchanged",
    "experiments.records.checksums.read_checksums",
    "experiments.records.checksums.verify_files",
    "experiments.records.data.recorded_data",
    "experiments.records.experiment.load_experiment",
    "experiments.records.outputs.read_metrics",
    "experiments.records.outputs.read_samples",
    "experiments.records.outputs.read_speeds",
    "experiments.records.outputs.step_checkpoints",
    "experiments.records.ownership.check_configuration",
    "experiments.records.processes.process_of",
    "experiments.records.progress.read_progress",
    "experiments.records.result.load_result",
    "experiments.records.run.last_log_lines",
    "experiments.records.run.locate",
    "experiments.records.run.read_run",
}
MAY_READ = {
    "ablations.folder.base",
    # At the moment of a decision, when a snapshot is stale at once; the last is the run itself.
    "ablations.runs.attempts",
    "ablations.runs.reuse",
    "ablations.runs.shared",
    "ablations.runs.supervise",
    "ablations.runs.entry",
}


# Lines of each room, templates included, of bench and of the tests.
LINES = {
    "ablations": 983,
    "ablations/costs": 654,
    "ablations/dashboard": 625,
    "ablations/figures": 228,
    "ablations/folder": 691,
    "ablations/proposals": 1_181,
    "ablations/report": 4_251,
    "ablations/runs": 2_426,
    "ablations/search": 713,
    "ablations/status": 437,
    "ablations/table1": 585,
    "ablations/tables": 2_148,
    "ablations/tracking": 294,
    "bench": 1_580,
    "experiments": 1_616,
    "experiments/attention": 578,
    "experiments/callbacks": 542,
    "experiments/catalog": 586,
    "experiments/evaluate": 974,
    "experiments/export": 822,
    "experiments/figures": 292,
    "experiments/records": 2_226,
    "tests": 28_215,
    "transformer": 2_511,
    "transformer/data": 2_539,
    "transformer/decoding": 404,
    "transformer/evaluation": 580,
    "transformer/kernels": 1_308,
    "transformer/model": 420,
    "transformer/parsing": 720,
    "transformer/training": 1_251,
    "transformer/variants": 1_333,
}


def modules() -> dict[str, Path]:
    """Every module of the project by its name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def imports(module: str) -> set[str]:
    """All that a module imports anywhere in it, as ``module`` or ``module.name``."""
    found: set[str] = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def room_of(module: str) -> str:
    return max((room for room in ALLOWED if within(module, room)), key=len)


def test_imports_point_down() -> None:
    def is_allowed(room: str, name: str) -> bool:
        package = name.partition(".")[0]
        if package in ("bench", "tests"):
            return False
        if package not in PACKAGES:
            return True
        return any(within(name, below) for below in (room, *ALLOWED[room]))

    refused = {
        module: [name for name in sorted(imports(module)) if not is_allowed(room_of(module), name)]
        for module in MODULES
    }
    assert {module: names for module, names in refused.items() if names} == {}


def test_each_room_needs_what_it_may_import() -> None:
    for room, below in ALLOWED.items():
        imported: set[str] = set()
        for module in MODULES:
            if room_of(module) == room:
                imported |= imports(module)
        for name in below:
            assert any(within(each, name) for each in imported), f"{room} does not need {name}"


def test_no_rooms_import_each_other_in_a_circle() -> None:
    arrows: dict[str, set[str]] = {}
    for module in MODULES:
        names = (name for name in imports(module) if name.partition(".")[0] in PACKAGES)
        room = room_of(module)
        arrows.setdefault(room, set()).update({room_of(name) for name in names} - {room})
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError


def room_lines() -> Counter[str]:
    found: Counter[str] = Counter()
    for package in (*PACKAGES, "bench", "tests"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix not in (".py", ".j2", ".js", ".css", ".html"):
                continue
            parts = path.relative_to(ROOT).parts
            nested = package in PACKAGES and len(parts) > 2
            room = "/".join(parts[:2] if nested else parts[:1])
            found[room] += path.read_text(encoding="utf-8").count("\n")
    return found


def test_rooms_keep_within_their_lines() -> None:
    """A guard against drift: a clear line more is welcome, another seventh of a room is not."""
    found = room_lines()
    assert found.keys() == LINES.keys()
    assert {room: count for room, count in found.items() if count > 1.15 * LINES[room]} == {}


def test_training_takes_only_the_batch_from_data() -> None:
    taken = {
        name for module in MODULES if within(module, "transformer.training")
        for name in imports(module) if within(name, "transformer.data")
    }  # fmt: skip
    assert taken == {"transformer.data.batches.Batch"}


def test_the_model_stands_on_torch_and_the_configuration_alone() -> None:
    roots = {
        name.partition(".")[0] for module in MODULES if within(module, "transformer.model")
        for name in imports(module)
    }  # fmt: skip
    assert roots <= {"torch", "transformer", *sys.stdlib_module_names}


@pytest.mark.parametrize("library", DOORS)
def test_a_library_enters_through_its_doors(library: str) -> None:
    users = {
        module for module in MODULES
        if any(library in name.split(".") for name in imports(module))
    }  # fmt: skip
    assert users == DOORS[library]


def test_one_module_reads_runs_and_those_that_carry_them_out() -> None:
    for name in READERS:
        module, _, function = name.rpartition(".")
        assert f"def {function}(" in MODULES[module].read_text(encoding="utf-8"), name
    of_ablations = {module for module in MODULES if within(module, "ablations")}
    assert {module for module in of_ablations if imports(module) & READERS} == MAY_READ


SLOW = ["torch", "lightning", "numpy", "sentencepiece", "sacrebleu", "requests", "babel"]
LIGHT = [
    "transformer",
    "transformer.config",
    "transformer.errors",
    "transformer.data.corpora.declared",
    "transformer.parsing.treebanks",
]


RECORDS = [module for module in MODULES if within(module, "experiments.records")]
USED = ["experiments.evaluate.trained", "experiments.attention.command"]


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        (LIGHT, SLOW),
        (RECORDS, SLOW[:2]),
        (["ablations.folder"], [*SLOW, "optuna", "cyclopts", "jinja2"]),
        pytest.param(USED, ["lightning"], marks=pytest.mark.slow),
    ],
)
def test_what_is_not_needed_is_not_imported(imported: list[str], absent: list[str]) -> None:
    """A configuration, records and results are read without torch, and results without optuna; a
    model is used without lightning.
    """
    code = f"import sys, {', '.join(imported)}\nprint(*{{*{absent}}} & {{*sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == []


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Transfomer'"):
        getattr(transformer, "Transfomer")  # noqa: B009


def test_a_modules_docstring_begins_with_at_most_ten_words() -> None:
    for module in MODULES:
        text = ast.get_docstring(parsed(module)) or ""
        words = text.partition("\n\n")[0].split()
        assert len(words) <= 10 and words[:1] not in (["What"], ["How"], ["Whether"]), module
