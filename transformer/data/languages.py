"""Languages and scripts by the codes that name them."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Language:
    """A language and its script.

    Attributes:
        code: of ISO 639-1, or of ISO 639-3 if it has none there
        script: of ISO 15924, such as ``Hans``; None if the language is unknown
    """

    code: str
    script: str | None


@functools.cache
def language_of(name: str) -> Language:
    """The language of a code of two or three letters, with or without a script or a region:
    ``zh``, ``zh-CN``, ``zho``, ``zho_Hans`` and ``cmn`` are all ``zh``.
    """
    from babel.core import get_global  # slow to import

    known = get_global("likely_subtags")
    scripts = {tag.split("_")[1] for tag in known.values()}
    code, *rest = re.split("[-_]", name.lower())
    code = get_global("language_aliases").get(code, code).split("_")[0]
    if code not in known:
        return Language(code, None)
    given = [part.title() for part in rest if part.title() in scripts]
    return Language(code, given[0] if given else known[code].split("_")[1])


def warn_if_unknown(name: str) -> None:
    """Warn of a target language whose name does not say how its text is split into words."""
    if language_of(name).script is None:
        warnings.warn(
            f"{name!r} is not the code of a language, such as zh or zho_Hans: BLEU will split its "
            "text into words at spaces",
            stacklevel=2,
        )
