"""The page of attention in a browser: choosing, pointing, the keyboard, accessibility."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from experiments.attention.command import attention_page
from tests.browser import complaints, violations
from transformer.evaluation.attention_weights import Attention, Kind

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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


def test_the_best_head_of_a_measure_is_shown_at_a_click(page: Page) -> None:
    page.get_by_role("link", name="layer 2 head 2: 100 %").nth(1).click()  # of the decoder
    assert words(page, "queries") == TARGET and count(page) == len(TARGET)
    assert page.get_by_label("2", exact=True).nth(1).is_checked()


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


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_anyone_can_read_it(path: Path, browser: Browser, width: int, scheme: str) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.goto(path.as_uri())
    page.locator("#queries button").first.hover()
    assert not violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
