"""What the README and the pages of docs/ show exists and runs."""

from __future__ import annotations

import ast
import csv
import dataclasses
import importlib
import itertools
import pkgutil
import re
import shlex
import subprocess
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from ablations.search.space import load_space
from ablations.tables.find import load_table
from ablations.tables.scales import QUICK
from experiments.catalog.find import find_experiment
from tests.samples import TINY_MODEL, random_sentences, random_targets, write_corpus
from tests.test_entry_points import PROGRAMS
from transformer.config import TrainingConfig
from transformer.decoding.incremental import check_cache
from transformer.training.optimizer import make_adam
from transformer.variant import build, class_name, variant_name

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCKS = {
    page.stem: re.findall(r"```(\w*)\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    for page in PAGES
}
COMMANDS = [
    shlex.split(line.partition(" < ")[0], comments=True)
    for language, block in itertools.chain(*BLOCKS.values())
    if not language
    for line in block.splitlines()
    if line
]
LINKING = (*PAGES, ROOT / "experiments" / "results" / "HISTORY.md")


def test_no_two_pages_have_one_name() -> None:
    assert len(BLOCKS) == len(PAGES)


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_each_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as GitHub and MkDocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings]
    return {re.sub(r"\s+", "-", each) for each in words}


def test_each_finding_is_in_the_index_and_each_page_in_the_site() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (RESULTS / "index.md").read_text("utf-8")))
    assert listed | {"index.md"} == {page.name for page in RESULTS.glob("*.md")}
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert not [page for page in PAGES if page.relative_to(ROOT).as_posix() not in site]


FINDINGS = [page for page in sorted(RESULTS.glob("*.md")) if page.stem != "index"]


@pytest.mark.parametrize("page", FINDINGS, ids=lambda page: page.stem)
def test_each_finding_has_a_question_a_claim_a_verdict_and_a_command(page: Path) -> None:
    heads = re.findall(r"^\| ([A-Z]\w+)[^|]* \| .+ \|$", page.read_text("utf-8"), re.MULTILINE)
    assert heads[:3] == ["Question", "Published", "Ours"] and "Verdict" in heads
    assert "Command" in heads or any(not language for language, _ in BLOCKS[page.stem])


def snippet(word: str, *pages: str) -> str:
    """The one block of Python with this text, on these pages or on all."""
    blocks = itertools.chain(*(BLOCKS[page] for page in pages or BLOCKS))
    (found,) = (block for language, block in blocks if language == "python" and word in block)
    return found


def test_the_table_shows_the_committed_results() -> None:
    columns = [
        ("quick", "paper_perplexity", 2),
        ("small", "perplexity", 3),
        ("quick", "perplexity", 3),
        ("quick", "paper_bleu", 1),
        ("small", "bleu", 1),
        ("quick", "bleu", 1),
    ]
    runs = {scale: committed_runs(f"table3-{scale}") for scale in ("small", "quick")}
    expected = [
        [row, *(mean(runs[scale][row], column, digits) for scale, column, digits in columns)]
        for row in runs["quick"]
    ]
    page = (RESULTS / "table3.md").read_text("utf-8")
    (table,) = re.findall(r"\| row \|.*\n\|-.*\n((?:\|.*\n)+)", page)
    assert [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
    ] == expected


def mean(runs: list[dict[str, str]], column: str, digits: int) -> str:
    """A number of the page: the mean over the seeds of a row."""
    return f"{fmean(float(run[column]) for run in runs):.{digits}f}"


def committed_runs(table: str) -> dict[str, list[dict[str, str]]]:
    """The lines of a committed table's ``results.csv`` by row, one for each seed."""
    path = ROOT / "experiments" / "results" / table / "results.csv"
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            found[line["row"]].append(line)
    return found


def test_the_citation_is_of_this_version() -> None:
    version = re.search(r'version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert version and f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


@pytest.mark.parametrize("target", sorted({c[1] for c in COMMANDS if c[0] == "make"}))
def test_each_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    list(dict.fromkeys(tuple(command) for command in COMMANDS if command[0] == "python")),
    ids=" ".join,
)
def test_each_command_and_option_exists(command: tuple[str, ...]) -> None:
    _, dash, module, *words = command
    assert dash == "-m"
    if module in PROGRAMS:
        PROGRAMS[module].app.parse_args(words)
    else:
        importlib.import_module(module).PARSER.parse_args(words)


@pytest.mark.parametrize("name", ["big-early", "wide-heads", "multi30k-modern"])
def test_the_tables_of_ones_own_are_tables(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(snippet(f'name="{name}"'), encoding="utf-8")
    table = load_table(str(path))
    assert {row.name for row in table.rows} == committed_runs(table.name).keys()


@pytest.mark.parametrize("name", ["gelu", "relu2"])
def test_each_table_of_a_variant_builds_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}_table.py"
    path.write_text(snippet(f'row("{name}", model=', "tutorial", "adding"))
    table = load_table(str(path))
    assert [row.name for row in table.rows] == ["base", name]
    config = table.configure(table.rows[1], QUICK)
    assert class_name(config.model.model or "").endswith("Transformer")
    check_cache(build(config.model))


def test_a_corpus_and_a_scale_on_it_are_what_their_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "numbers")
    (tmp_path / "my_corpus.py").write_text(snippet("# my_corpus.py"))
    (tmp_path / "table3_numbers.py").write_text(snippet("# table3_numbers.py"))
    table = load_table(str(tmp_path / "table3_numbers.py"))
    at_scale = [table.configure(row, table.scales[0]) for row in table.rows]
    assert len(at_scale) == 20 and at_scale[0].model.d_model == 64
    own = find_experiment(str(tmp_path / "my_corpus.py")).config
    for corpus in (own.data.corpus, at_scale[0].data.corpus):
        assert all(Path(file.location).is_file() for file in corpus.files)
        assert corpus.source_language == "de"


def test_the_api_page_has_all_public_names() -> None:
    page = (DOCS / "api.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.M | re.DOTALL))
    assert [*sections][:3] == ["transformer", "ablations.tables", "ablations.search"]
    for name, section in sections.items():
        module = importlib.import_module(name)
        found = [*map(pkgutil.resolve_name, re.findall(r"^::: (\S+)$", section, re.M))]
        if hasattr(module, "__path__"):
            assert found == [getattr(module, public) for public in module.__all__]
        else:
            assert found and all(each.__module__ == name for each in found)


ERRORS = ("InputError", "BlockedError", "VocabularySizeError", "OutOfMemoryError")


@pytest.mark.slow
def test_each_error_of_the_questions_is_one_that_the_project_has() -> None:
    page = (DOCS / "faq.md").read_text("utf-8")
    patterns = [
        message_pattern(node.args[0])
        for package in ("transformer", "experiments", "ablations")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS
    ]
    messages = re.findall(r"^### `(.+)`$", page, flags=re.MULTILINE)
    assert len(messages) >= 12
    for message in messages:
        assert any(re.fullmatch(pattern, message) for pattern in patterns), message


def message_pattern(message: ast.expr) -> str:
    """A regular expression of what an error may say; its fixed words must be ten letters."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    said = [re.escape(str(x.value)) if isinstance(x, ast.Constant) else ".+" for x in parts]
    fixed = sum(len(words) for words in said if words != ".+")
    return "".join(said) if fixed >= 10 else "no error"


def test_the_space_of_ones_own_is_one(tmp_path: Path) -> None:
    path = tmp_path / "smoothing.py"
    path.write_text(snippet("SPACE = Space(", "search"), encoding="utf-8")
    space = load_space(str(path))
    assert [each.name for each in space.parameters] == ["label_smoothing", "d_ff"]


def test_the_corpus_of_ones_own_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "numbers")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(snippet("files_corpus("), names)
    assert names["config"].data.corpus.name == "numbers_de_en"
    assert all(Path(file.location).is_file() for file in names["corpus"].files)


@pytest.mark.filterwarnings("ignore::UserWarning:lightning")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX`:UserWarning")
def test_the_library_example_trains_scores_loads_and_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "numbers")
    code = snippet("Trainer(max_epochs")
    for given, small in (
        ("corpus=MULTI30K_EN_DE", f"corpus=folder_corpus({str(corpus)!r})"),
        ("    MULTI30K_EN_DE,", "    folder_corpus,"),
        ("vocab_size=4_000", "vocab_size=61"),
        ("max_epochs=2", "max_epochs=2, limit_train_batches=2"),
    ):
        assert given in code
        code = code.replace(given, small)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    said = capsys.readouterr()
    assert "Epoch 1/1" in said.out + said.err
    for words in ("CorpusScore(score=", "Perplexity(per_token="):
        assert words in said.out
    begun = snippet("begin_with").replace('"Ein"', '"drei vier"')
    exec(begun, names)
    found = ast.literal_eval(capsys.readouterr().out)
    assert len(found) == 2 and all(line.startswith("drei vier") for line in found)


@pytest.mark.slow
def test_the_library_example_reads_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(snippet("open_folder"), names)
    runs = capsys.readouterr().out.splitlines()
    assert len(runs) == 61 and runs[0].startswith("base 1 29.2")
    assert runs[-1] == "Table 3: variations on the Transformer architecture []"
    exec(snippet("compute_numbers"), names)
    rows = capsys.readouterr().out.splitlines()
    report = (ROOT / "experiments" / "results" / "table3-small" / "report.md").read_text("utf-8")
    verdicts = {line.split()[0]: line.rpartition(") ")[2] for line in rows}
    (told,) = re.findall(r"- Perplexity: \d+ of \d+ rows are within noise of .* \((.*)\)", report)
    assert [row for row, said in verdicts.items() if said == "within noise"] == told.split(", ")


@pytest.mark.parametrize("name", ["Gelu", "ScaleNorm", "Tempered"])
def test_each_variant_of_the_docs_trains_and_decodes(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name.lower()}_example.py"
    path.write_text(snippet(f"class {name}Transformer", "variants"))
    config = dataclasses.replace(TINY_MODEL, model=variant_name(f"{path}:{name}Transformer"))
    model = build(config)
    check_cache(model)
    with torch.no_grad():
        for parameter in model.parameters():  # without biases, gains before a norm do not matter
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model(random_sentences([5, 3]), random_targets([7, 7])).square().sum().backward()
    optimizer = make_adam(model.parameters(), TrainingConfig())
    optimizer.step()
    assert all(not value.equal(before[key]) for key, value in model.state_dict().items())


def test_the_table_of_the_page_on_variants_can_be_planned(tmp_path: Path) -> None:
    (tmp_path / "my_table.py").write_text(snippet('row("narrow-gelu"'))
    table = load_table(str(tmp_path / "my_table.py"))
    models = [table.configure(row, QUICK).model for row in table.rows]
    names = ["", "GeluTransformer", "SwiGLUTransformer", "GeluTransformer"]
    assert [class_name(x.model or "") for x in models] == names
    assert models[3].d_ff == 128
