"""The families of phrases of ``cldr_en_de``: each draws a meaning and writes it in both languages.

A family takes a random number generator and returns the phrase in English and in German. The result
depends on that generator alone, not on clock, time zone, environment or the order of a set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Literal, cast

from babel import Locale, dates, lists, numbers, units
from num2words import num2words  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

Pair = tuple[str, str]
Family = Callable[[Random], Pair]
Field = Literal["territories", "languages", "currencies"]
Span = Literal["year", "month", "week", "day"]

ENGLISH, GERMAN = Locale("en"), Locale("de")
UNITS = tuple(
    f"{quantity}-{unit}"
    for quantity, names in {
        "duration": "year month week day hour minute second",
        "length": "kilometer meter centimeter mile foot inch",
        "mass": "tonne kilogram gram pound",
        "area": "square-kilometer hectare",
        "volume": "liter milliliter gallon",
        "temperature": "celsius",
        "digital": "gigabyte byte",
        "power": "watt",
        "electric": "volt",
        "concentr": "percent",
    }.items()
    for unit in names.split()
)
# Few enough to be learned in a minute: each name occurs in hundreds of phrases.
CODES: dict[Field, str] = {
    "territories": "AT BE BR CA CH CN CZ DE DK EG ES FI FR GB GR HU IE IN IS IT JP KE MX NG NL NO "
    "PE PL PT RO RU SE TR UA US ZA",
    "languages": "ar cs da de el en es fi fr hi hu it ja ko nl no pl pt ro ru sv tr",
    "currencies": "AUD BRL CAD CHF CNY CZK DKK EUR GBP HUF INR JPY MXN NOK PLN SEK USD",
}
FLOWING = tuple(u for u in UNITS if u.split("-")[0] in ("length", "mass", "volume", "digital"))
PER = tuple(f"duration-{unit}" for unit in ("second", "minute", "hour", "day", "month", "year"))
DAYS: dict[Span, int] = {"year": 365, "month": 30, "week": 7, "day": 1}
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


def _clock(rng: Random) -> tuple[int, int]:
    return rng.randrange(24), rng.randrange(60)


def _day(rng: Random) -> date:
    return date(1990, 1, 1) + timedelta(rng.randrange(40 * 365))


@functools.cache
def _unit_name(unit: str, locale: Locale) -> str:
    return units.format_unit(2, unit, locale=locale).split(maxsplit=1)[1]


@functools.cache
def named(field: Field) -> dict[str, Pair]:
    """The names of some countries, languages or currencies, by code."""
    english, german = (cast(dict[str, str], getattr(locale, field)) for locale in (ENGLISH, GERMAN))
    return {code: (english[code], german[code]) for code in CODES[field].split()}


def _named(rng: Random) -> list[Pair]:
    fields: tuple[Field, ...] = ("territories", "languages", "currencies")
    return list(named(rng.choice(fields)).values())


def _currency(rng: Random) -> str:
    return rng.choice(list(named("currencies")))


def a_name(rng: Random) -> Pair:
    """A country, a language or a currency."""
    return rng.choice(_named(rng))


def names(rng: Random) -> Pair:
    """Two to four names of one kind, joined by "and" or "or"."""
    chosen = rng.sample(_named(rng), rng.randint(2, 4))
    style = rng.choice(("standard", "or"))
    english, german = zip(*chosen, strict=True)
    return lists.format_list(english, style, ENGLISH), lists.format_list(german, style, GERMAN)


def a_date(rng: Random) -> Pair:
    """A day in one of four widths, or a month or quarter of a year."""
    day, style = _day(rng), rng.choice(("short", "medium", "long", "full", "yMMMM", "yQQQQ"))
    if style.startswith("y"):
        moment = datetime.combine(day, time())
        return _both(lambda locale: dates.format_skeleton(style, moment, locale=locale))
    if style == "medium" and day.month == 5:  # "May 1, 2001" is long English too
        return a_date(rng)
    return _both(lambda locale: dates.format_date(day, style, locale=locale))


def a_time(rng: Random) -> Pair:
    """A time of day: twelve hours in English, twenty-four in German."""
    clock, style = time(*_clock(rng), rng.randrange(60)), rng.choice(("short", "medium"))
    return _both(lambda locale: dates.format_time(clock, style, locale=locale))


def hours(rng: Random) -> Pair:
    """From one time of day to a later one."""
    first, last = (datetime(2000, 1, 1, *clock) for clock in sorted((_clock(rng), _clock(rng))))
    styles = {ENGLISH: "hm", GERMAN: "Hm"}
    return _both(lambda locale: dates.format_interval(first, last, styles[locale], locale=locale))


def a_moment(rng: Random) -> Pair:
    """A day with a time of day or the hours from one to another."""
    day, style = _day(rng), rng.choice(("short", "long", "full"))
    clocks = dict(zip((ENGLISH, GERMAN), rng.choice((a_time, hours))(rng), strict=True))

    def write(locale: Locale) -> str:
        pattern = str(dates.get_datetime_format(style, locale=locale))
        written = dates.format_date(day, style, locale=locale)
        return pattern.replace("{0}", clocks[locale]).replace("{1}", written)

    return _both(write)


def days(rng: Random) -> Pair:
    """From one day or month to another; the parts that both share are written once."""
    first = _day(rng)
    last = first + timedelta(rng.randint(1, rng.choice((10, 60, 300))))
    style = rng.choice(("yMMMd", "yMMMEd", "MMMd", "yMd", "yMMMM"))
    return _both(lambda locale: dates.format_interval(first, last, style, locale=locale))


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
    """One to three measures, joined by "and", with their numbers in figures."""
    parts = [(_quantity(rng), unit) for unit in rng.sample(UNITS, rng.randint(1, 3))]
    return _both(
        lambda locale: lists.format_list(
            [units.format_unit(number, unit, locale=locale) for number, unit in parts],
            locale=locale,
        )
    )


def a_rate(rng: Random) -> Pair:
    """A measure per unit of time."""
    number, unit, per = _quantity(rng), rng.choice(FLOWING), rng.choice(PER)
    return _both(
        lambda locale: str(
            units.format_compound_unit(number, unit, denominator_unit=per, locale=locale)
        )
    )


def counted(rng: Random) -> Pair:
    """A measure or an amount of money, in words."""
    number, unit, code = _plural(rng, 4), rng.choice(UNITS), _currency(rng)
    if rng.random() < 0.5:
        return _both(lambda locale: f"{in_words(number, locale)} {_unit_name(unit, locale)}")
    return _both(
        lambda locale: " ".join(
            (in_words(number, locale), numbers.get_currency_name(code, number, locale))
        )
    )


def ago(rng: Random) -> Pair:
    """How long ago, or in how long; German requires the dative."""
    number, unit, sign = _plural(rng, 3), rng.choice(list(DAYS)), rng.choice((1, -1))
    spelt = rng.random() < 0.5

    def write(locale: Locale) -> str:
        written = dates.format_timedelta(
            timedelta(sign * number * DAYS[unit]),
            granularity=unit,
            threshold=float("inf"),
            add_direction=True,
            locale=locale,
        )
        return written.replace(str(number), in_words(number, locale)) if spelt else written

    return _both(write)


def a_number(rng: Random) -> Pair:
    """In words: a cardinal or ordinal number, or a year, which is read in hundreds."""
    style = rng.choice(("cardinal", "cardinal", "ordinal", "year"))
    digits = 5 if style == "cardinal" else 3
    number = rng.randrange(1_100, 2_100) if style == "year" else _number(rng, digits)
    return _both(lambda locale: in_words(number, locale, style))
