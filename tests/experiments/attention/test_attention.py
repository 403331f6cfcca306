"""Words and heads, the command that draws them, and its page in a browser."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch

from experiments.attention.command import attention_page
from experiments.attention.figure import colour_of, join_words, mark_pieces
from experiments.figures.render import DrawingError
from tests.browser import complaints, violations
from tests.experiments.conftest import Command
from transformer.evaluation.attention_weights import Attention, Kind, attend

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
SENTENCE = "one two three"


def test_words_are_the_sum_over_keys_and_the_mean_over_queries() -> None:
    pieces = ["▁a", "▁lad", "der", ".", "</s>"]
    weights = torch.tensor(
        [
            [0.5, 0.2, 0.1, 0.1, 0.1],
            [0.0, 0.4, 0.2, 0.4, 0.0],
            [0.4, 0.0, 0.2, 0.1, 0.3],
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
        ]
    )
    found = join_words(Attention(queries=pieces, keys=pieces, weights=weights[None, None]))
    assert found.queries == found.keys == ["a", "ladder", ".", "</s>"]
    expected = torch.tensor(
        [
            [0.5, 0.3, 0.1, 0.1],
            [0.2, 0.4, 0.25, 0.15],
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
        ]
    )
    torch.testing.assert_close(found.weights[0, 0], expected)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("<s> ▁blue - wh ite ▁don ' t", "<s> blue - white don ' t"),
        ("▁ é t é ... </s>", "été ... </s>"),
        ("<s> zt </s>", "<s> zt </s>"),
        ("<unk> s </s>", "<unk>s </s>"),
    ],
)
def test_words_end_at_spaces_and_at_punctuation(pieces: str, words: str) -> None:
    keys = pieces.split()
    weights = torch.ones(1, 1, 1, len(keys))
    found = join_words(Attention(queries=["▁x"], keys=keys, weights=weights))
    assert found.keys == words.split()
    assert found.weights.sum() == len(keys)


def test_word_pieces_that_continue_a_word_are_marked() -> None:
    pieces = ["<s>", "▁lad", "der", "</s>"]
    found = mark_pieces(Attention(queries=pieces, keys=pieces, weights=torch.eye(4)[None, None]))
    assert found.queries == found.keys == ["<s>", "lad", "·der", "</s>"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_a_figure_has_the_heads_that_were_asked_for(
    ending: str, finished: Path, tmp_path: Path, call: Command
):
    path = tmp_path / f"heads.{ending}"
    options = ["--kind", "cross", "--layer", "1", "--heads", "3,1", "--words", "--output", path]
    ended = call("attention", finished, SENTENCE, *options, "--translation", "eins zwei")
    assert (ended.code, ended.stdout) == (0, f"{path}\n")
    starts = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
    assert path.read_bytes().startswith(starts[ending])
    if ending == "svg":
        drawn = path.read_text(encoding="utf-8")
        colours = set(re.findall(r'<line[^>]*stroke="(#\w+)"', drawn))
        assert colours >= {colour_of(1), colour_of(3)} and colour_of(2) not in drawn
        assert "layer 1, heads 1, 3" in drawn
        for word in ("three", "zwei", "&lt;/s&gt;"):
            assert f">{word}</text>" in drawn


def test_a_figure_that_cannot_be_drawn_is_named_with_what_needs_no_drawing(
    finished: Path, tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: object) -> None:
        raise DrawingError("memory is short")

    monkeypatch.setattr("experiments.attention.command.to_svg", fail)
    ended = call("attention", finished, SENTENCE, "--output", tmp_path / "a.svg")
    assert ended.code == 2 and not ended.stdout
    assert "memory is short; --output with a name in .html needs no drawing" in ended.stderr
    assert not list(tmp_path.glob("a.*"))


def test_the_page_is_written_into_the_run(copy: Path, call: Command):
    assert call("attention", copy, "one <b>").code == 0
    page = (copy / "attention.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)


@pytest.mark.slow
def test_stacks_of_different_depths_are_drawn(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command
):
    def deeper(*args: Any, **options: Any) -> dict[Kind, Attention]:
        found = attend(*args, **options)
        weights = found["cross"].weights.repeat(2, 1, 1, 1)
        return {**found, "cross": dataclasses.replace(found["cross"], weights=weights)}

    monkeypatch.setattr("experiments.attention.command.attend", deeper)
    path, words = tmp_path / "x.svg", ("attention", copy, SENTENCE)
    assert call(*words, "--output", path).code == 0
    assert "layer 1, heads 1, 2, 3" in path.read_text(encoding="utf-8")
    assert "the model has layers 1 to 1" in call(*words, "--layer", "2").stderr
    assert call(*words, "--layer", "2", "--kind", "cross").code == 0
    assert 'name="layer" value="2" checked' in (copy / "attention.html").read_text(encoding="utf-8")


LAYERS, HEADS = 2, 3
SOURCE, TARGET = ["Two", "ladders", ".", "</s>"], ["Zwei", "Leitern", "</s>"]
SIDES: dict[Kind, tuple[list[str], list[str]]] = {
    "encoder": (SOURCE, SOURCE),
    "decoder": (TARGET, ["<s>", *TARGET[:-1]]),
    "cross": (TARGET, SOURCE),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every head of layer 2 attends to the word at its own place, those of layer 1 to all."""
    found: dict[Kind, Attention] = {}
    for kind, (queries, keys) in SIDES.items():
        shape = (len(queries), len(keys))
        layers = [torch.full(shape, 1 / len(keys)), torch.eye(*shape)]
        weights = torch.stack(layers)[:, None].expand(LAYERS, HEADS, *shape)
        found[kind] = Attention(queries=queries, keys=keys, weights=weights)
    path = tmp_path_factory.mktemp("page") / "attention.html"
    content = attention_page(found, run="runs/a", kind="encoder", layer=2, heads=[1, 3])
    path.write_text(content, encoding="utf-8")
    return path


@pytest.fixture
def page(path: Path, browser: Browser) -> Generator[Page]:
    """The page in a window of its own, which must not complain about anything."""
    page = browser.new_page()
    found = complaints(page, path.as_uri())
    page.goto(path.as_uri())
    yield page
    page.close()
    assert not found


def words(page: Page, side: str) -> list[str]:
    return page.locator(f"#{side} button").all_inner_texts()


def count(page: Page) -> int:
    return page.locator("#drawing line").count()


@pytest.mark.slow
def test_kind_layer_and_heads_are_chosen_and_the_address_keeps_them(page: Page) -> None:
    assert page.title() == "Attention: Two ladders ."
    assert words(page, "queries") == words(page, "keys") == SOURCE
    assert count(page) == 2 * len(SOURCE)
    page.get_by_label("Encoder-decoder attention").check()
    page.get_by_label("3", exact=True).uncheck()
    page.get_by_role("group", name="Layer").get_by_label("1").check()
    assert (words(page, "queries"), words(page, "keys")) == (TARGET, SOURCE)
    assert count(page) == 3 * 4
    page.reload()
    assert words(page, "queries") == TARGET and count(page) == 3 * 4
    page.get_by_role("button", name="none").click()
    assert count(page) == 0 and page.get_by_text("Choose at least one head.").is_visible()
    page.get_by_role("button", name="all").click()
    assert count(page) == HEADS * 3 * 4


def test_a_word_shows_its_lines_alone_while_it_is_pointed_at_or_kept(page: Page) -> None:
    word = page.locator("#keys button").nth(1)
    word.hover()
    assert count(page) == 2
    said = "“ladders” is attended to by: ladders 100 %, mean of 2 heads"
    assert page.get_by_role("status").inner_text() == said
    page.mouse.move(0, 0)
    assert count(page) == 2 * len(SOURCE)
    word.click()
    page.mouse.move(0, 0)
    page.get_by_role("heading").first.click()
    assert count(page) == 2 and word.get_attribute("aria-pressed") == "true"


def test_words_are_reached_by_the_keyboard(page: Page) -> None:
    page.get_by_role("button", name="none").focus()
    for key in ("Tab", "ArrowDown", "ArrowDown", "Enter", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.innerText") == "."
    assert page.evaluate("document.activeElement.parentElement.id") == "keys"
    kept = page.locator("#queries button[aria-pressed=true]")
    assert kept.inner_text() == "."
    page.keyboard.press("Escape")
    assert kept.count() == 0 and count(page) == 2 * len(SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_anyone_can_read_it(path: Path, browser: Browser, width: int, scheme: Scheme) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(path.as_uri())
    page.locator("#queries button").first.hover()
    assert not violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
