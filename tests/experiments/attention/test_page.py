"""The page of attention in a browser: choosing, pointing, the keyboard, accessibility."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from experiments.attention.page import attention_page
from tests.browser import complaints, violations
from transformer.evaluation.attention_weights import Attention, Kind

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LAYERS, HEADS = 2, 3
SOURCE = ["▁Two", "▁lad", "ders", ".", "</s>"]
TARGET = ["▁Zwei", "▁Lei", "tern", "</s>"]
READ = ["<s>", *TARGET[:-1]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every head of layer 2 attends to the word at its own place, those of layer 1 to all."""
    found: dict[Kind, Attention] = {}
    sides: dict[Kind, tuple[list[str], list[str]]] = {
        "encoder": (SOURCE, SOURCE),
        "decoder": (TARGET, READ),
        "cross": (TARGET, SOURCE),
    }
    for kind, (queries, keys) in sides.items():
        shape = (len(queries), len(keys))
        layers = [torch.full(shape, 1 / len(keys)), torch.eye(*shape)]
        weights = torch.stack(layers)[:, None].expand(LAYERS, HEADS, *shape)
        found[kind] = Attention(queries=queries, keys=keys, weights=weights)
    path = tmp_path_factory.mktemp("page") / "attention.html"
    content = attention_page(
        found, run="runs/a", kind="encoder", layer=2, heads=[1, 3], words=False
    )
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


def test_kind_layer_heads_and_text_are_chosen_and_the_address_keeps_them(page: Page) -> None:
    assert page.title() == "Attention: Two ladders."
    assert words(page, "queries") == words(page, "keys") == ["Two", "lad", "·ders", "·.", "</s>"]
    assert count(page) == 2 * len(SOURCE)
    page.get_by_label("Encoder-decoder attention").check()
    page.get_by_role("radio", name="words", exact=True).check()
    page.get_by_label("3", exact=True).uncheck()
    assert words(page, "queries") == ["Zwei", "Leitern", "</s>"]
    assert words(page, "keys") == ["Two", "ladders", ".", "</s>"]
    page.get_by_role("group", name="Layer").get_by_label("1").check()
    assert count(page) == 3 * 4
    page.reload()
    assert words(page, "queries") == ["Zwei", "Leitern", "</s>"] and count(page) == 3 * 4
    page.get_by_role("button", name="none").click()
    assert count(page) == 0 and page.get_by_text("Choose at least one head.").is_visible()
    page.get_by_role("button", name="all").click()
    assert count(page) == HEADS * 3 * 4


def test_a_word_shows_its_lines_alone_while_it_is_pointed_at_or_kept(page: Page) -> None:
    word = page.locator("#keys button").nth(1)
    word.hover()
    assert count(page) == 2
    said = "“lad” is attended to by: lad 100 %, mean of 2 heads"
    assert page.get_by_role("status").inner_text() == said
    shares = page.locator("#queries button").nth(1).locator("i")
    assert [shares.nth(n).evaluate("x => x.style.opacity") for n in (0, 1)] == ["1", "1"]
    page.mouse.move(0, 0)
    assert count(page) == 2 * len(SOURCE)
    word.click()
    page.mouse.move(0, 0)
    page.get_by_role("heading").first.click()
    assert count(page) == 2 and word.get_attribute("aria-pressed") == "true"
    # it stays kept in another layer, of which it shows all lines
    page.get_by_role("group", name="Layer").get_by_label("1").check()
    assert count(page) == 2 * len(SOURCE)


def test_words_are_reached_by_the_keyboard(page: Page) -> None:
    page.get_by_role("radio", name="word-pieces").focus()
    for key in ("Tab", "ArrowDown", "ArrowDown", "Enter", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.innerText") == "·ders"
    assert page.evaluate("document.activeElement.parentElement.id") == "keys"
    kept = page.locator("#queries button[aria-pressed=true]")
    assert kept.inner_text() == "·ders"
    page.keyboard.press("Escape")
    assert kept.count() == 0 and count(page) == 2 * len(SOURCE)


def test_a_head_that_was_found_is_shown_by_a_click(page: Page) -> None:
    page.get_by_role("button", name="layer 2 head 2: 100 %").first.click()
    assert count(page) == len(SOURCE)
    assert page.get_by_label("2", exact=True).nth(1).is_checked()


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
