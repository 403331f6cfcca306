"""The built-in corpus ``cldr_en_de``: phrases from Unicode's locale data.

Babel and num2words write the same date, price, measure, list of names or number in both languages.
A model learns names, words that change places, endings, compounds and figures in minutes; each
source has one target, so a score close to perfect says nothing about translation in general.

The result depends on the random number generator alone, not on the environment.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from random import Random
from typing import Literal, cast

from babel import Locale, dates, lists, numbers, units
from num2words import num2words  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

Pair = tuple[str, str]
Family = Callable[[Random], Pair]
Field = Literal["territories", "languages", "currencies"]

SEED = 2020
PAIRS = 12_000
HELD_OUT = 1_000
#: Determines the bytes of the corpus. Change the seed whenever the phrases change.
VERSION: str = f"{SEED}-{version('babel')}-{version('num2words')}"

LOCALES = ENGLISH, GERMAN = Locale("en"), Locale("de")
UNITS = tuple(
    f"{quantity}-{unit}"
    for quantity, names in {
        "duration": "year month week day hour minute",
        "length": "kilometer meter mile",
        "mass": "kilogram gram pound",
        "volume": "liter",
        "digital": "gigabyte",
    }.items()
    for unit in names.split()
)
# Few enough to be learned in a minute: each name occurs in hundreds of phrases.
CODES: dict[Field, str] = {
    "territories": "AT BE CH CN DE DK ES FR GB GR IN IT JP NL PL US",
    "languages": "da de en es fr it ja nl pl",
    "currencies": "CHF CNY DKK EUR GBP INR JPY USD",
}
WHOLE = numbers.parse_pattern("#,##0")


def _both(write: Callable[[Locale], str]) -> Pair:
    return write(ENGLISH), write(GERMAN)


def in_words(number: int, locale: Locale, style: str = "cardinal") -> str:
    """A number in words; ``style`` is ``cardinal``, ``ordinal`` or ``year``."""
    return cast(str, num2words(number, lang=locale.language, to=style))


def _number(rng: Random, digits: int) -> int:
    """A number of at most ``digits`` digits; its length is drawn first."""
    number = rng.randrange(10 ** rng.randint(2, digits))
    # num2words writes 101,000 as "einhunderteinstausend", which has an s too many.
    return _number(rng, digits) if number >= 2_000 and number // 1_000 % 100 == 1 else number


def _plural(rng: Random, digits: int) -> int:
    """A number before a noun: not 1, 101 and so on, whose "one" German inflects for gender."""
    number = _number(rng, digits)
    return _plural(rng, digits) if number == 0 or number % 100 == 1 else number


def _quantity(rng: Random) -> int | Decimal:
    """A number in figures, sometimes with one decimal."""
    if rng.random() < 0.25:
        return Decimal(rng.randrange(11, 1_000)).scaleb(-1)
    return rng.randrange(1, 10 ** rng.randint(2, 3))


@functools.cache
def named(field: Field) -> dict[str, Pair]:
    """The names of some countries, languages or currencies, by code."""
    english, german = (cast(dict[str, str], getattr(locale, field)) for locale in (ENGLISH, GERMAN))
    return {code: (english[code], german[code]) for code in CODES[field].split()}


def _named(rng: Random) -> list[Pair]:
    return list(named(rng.choice(list(CODES))).values())


def _currency(rng: Random) -> str:
    return rng.choice(CODES["currencies"].split())


def a_name(rng: Random) -> Pair:
    """A country, a language or a currency."""
    return rng.choice(_named(rng))


def names(rng: Random) -> Pair:
    """Two or three names of one kind, joined by "and" or "or"."""
    chosen = rng.sample(_named(rng), rng.randint(2, 3))
    style = rng.choice(("standard", "or"))
    english, german = zip(*chosen, strict=True)
    return lists.format_list(english, style, ENGLISH), lists.format_list(german, style, GERMAN)


def a_date(rng: Random) -> Pair:
    """A day in one of three widths, or a month."""
    day = date(1990, 1, 1) + timedelta(rng.randrange(40 * 365))
    style = rng.choice(("short", "medium", "long", "yMMMM"))
    if style.startswith("y"):
        moment = datetime.combine(day, time())
        return _both(lambda locale: dates.format_skeleton(style, moment, locale=locale))
    if style == "medium" and day.month == 5:  # "May 1, 2001" is long English too
        return a_date(rng)
    return _both(lambda locale: dates.format_date(day, style, locale=locale))


def a_time(rng: Random) -> Pair:
    """A time of day: twelve hours in English, twenty-four in German."""
    clock = time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
    style = rng.choice(("short", "medium"))
    return _both(lambda locale: dates.format_time(clock, style, locale=locale))


def a_price(rng: Random) -> Pair:
    """An amount of money in figures, with the symbol or the name of its currency."""
    code, style = _currency(rng), rng.choice(("symbol", "name", "whole"))
    amount = Decimal(rng.randrange(200, 10 ** rng.randint(3, 5))).scaleb(-2)
    if style == "whole":
        return _both(
            lambda locale: numbers.format_currency(
                int(amount), code, WHOLE, locale, currency_digits=False, format_type="name"
            )
        )
    kind: Literal["standard", "name"] = "standard" if style == "symbol" else "name"
    return _both(lambda locale: numbers.format_currency(amount, code, None, locale, True, kind))


def measures(rng: Random) -> Pair:
    """One or two measures, joined by "and", with their numbers in figures."""
    parts = [(_quantity(rng), unit) for unit in rng.sample(UNITS, rng.randint(1, 2))]
    return _both(
        lambda locale: lists.format_list(
            [units.format_unit(number, unit, locale=locale) for number, unit in parts],
            locale=locale,
        )
    )


def counted(rng: Random) -> Pair:
    """A measure or an amount of money, in words."""
    number, unit, code = _plural(rng, 3), rng.choice(UNITS), _currency(rng)
    if rng.random() < 0.5:
        named = {x: units.format_unit(2, unit, locale=x).split(maxsplit=1)[1] for x in LOCALES}
    else:
        named = {x: numbers.get_currency_name(code, number, x) for x in LOCALES}
    return _both(lambda locale: f"{in_words(number, locale)} {named[locale]}")


def a_number(rng: Random) -> Pair:
    """In words: a cardinal or ordinal number, or a year, which is read in hundreds."""
    style = rng.choice(("cardinal", "cardinal", "ordinal", "year"))
    digits = 4 if style == "cardinal" else 3
    number = rng.randrange(1_100, 2_100) if style == "year" else _number(rng, digits)
    return _both(lambda locale: in_words(number, locale, style))


#: The weight with which each family is drawn, before duplicates are left out.
FAMILIES: dict[Family, int] = {
    a_name: 2, names: 16, a_date: 9, a_time: 3, a_price: 8, measures: 12, counted: 14, a_number: 6
}  # fmt: skip


def pairs(seed: int, count: int) -> list[Pair]:
    """``count`` phrases in English and German, all distinct on both sides; a prefix of more."""
    rng = Random(seed)
    families, weights = list(FAMILIES), list(FAMILIES.values())
    target_of: dict[str, str] = {}
    targets: set[str] = set()
    while len(target_of) < count:
        (family,) = rng.choices(families, weights)
        # CLDR uses narrow, thin and no-break spaces; all count as white space.
        source, target = (" ".join(text.split()) for text in family(rng))
        if source not in target_of and target not in targets:
            target_of[source] = target
            targets.add(target)
    return list(target_of.items())


def write(directory: pathlib.Path) -> None:
    """Make a directory of ``train``, ``valid`` and ``test``, each with ``.en`` and ``.de``."""
    directory.mkdir()
    drawn = pairs(SEED, PAIRS)
    # The smaller families are exhausted towards the end, so the held-out phrases come first.
    valid, test, train = drawn[:HELD_OUT], drawn[HELD_OUT : 2 * HELD_OUT], drawn[2 * HELD_OUT :]
    for split, held in (("valid", valid), ("test", test), ("train", train)):
        for language, lines in zip(("en", "de"), zip(*held, strict=True), strict=True):
            path = directory / f"{split}.{language}"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
