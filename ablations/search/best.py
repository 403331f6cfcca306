"""The best configuration of a search, as an experiment that one can train by name."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ablations import formats
from ablations.search.search import Search
from ablations.search.trials import Trial, best
from experiments.experiment import BEST_FILE
from experiments.files import write_atomically
from transformer.config import Config, DataConfig, to_dict
from transformer.corpus import Corpus
from transformer.data.corpora import declared


def write_best(search: Search, trials: Sequence[Trial], root: Path) -> Path | None:
    """Write ``best.py`` into the search's directory, if it says another thing than before.

    Returns:
        Its path, or None where no trial has finished yet.
    """
    found = best(trials)
    if found is None:
        return None
    path, text = root / BEST_FILE, to_python(search, found, trials)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)
    return path


def to_python(search: Search, trial: Trial, trials: Sequence[Trial]) -> str:
    """A Python file that declares the configuration of ``trial``, whole and by itself."""
    ended = sum(other.has_ended for other in trials)
    perplexity = formats.number(trial.perplexity, 3)
    config = search.configure(trial.values)
    found = {
        field: trial.values[parameter.name]
        for parameter in search.parameters
        for field in parameter.fields
    }
    scaled = {name: value for name, value in _differences(config).items() if name not in found}
    corpus, names, imports = _corpus(config.data.corpus)
    what = f"{search.title}, the best of {ended} trials at scale {search.scale}"
    said = (
        f"{what}: {trial.name}, perplexity {perplexity} on the validation set. "
        f"``python -m experiments train {search.name}-best`` trains it."
    )
    return "\n".join(
        [
            f'"""{textwrap.fill(said, 96)}',
            '"""',
            "",
            "from experiments.experiment import Experiment",
            f"from transformer import {', '.join(names)}, override",
            *imports,
            "",
            f"CORPUS = {corpus}",
            "",
            "EXPERIMENT = Experiment(",
            f"    name={_literal(search.name + '-best')},",
            f"    description={_literal(what)},",
            "    config=override(",
            "        Config(data=DataConfig(corpus=CORPUS)),  # the paper's base model",
            "        # Found by the search.",
            *_arguments(found),
            f"        # Of the scale {search.scale}.",
            *_arguments(scaled),
            "    ),",
            f'    tags=("search", {_literal(search.space)}, {_literal(search.scale)}),',
            ")",
            "",
        ]
    )


def _arguments(values: Mapping[str, object]) -> list[str]:
    return [f"        {name}={_literal(value)}," for name, value in values.items()]


def _differences(config: Config) -> dict[str, object]:
    """The settings in which ``config`` differs from the paper's base, the corpus left out."""
    base = Config(data=DataConfig(corpus=config.data.corpus))
    return {
        name: value
        for section, settings in to_dict(config).items()
        for name, value in settings.items()
        if value != to_dict(base)[section][name]
    }


def _corpus(corpus: Corpus) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The corpus in Python, by name where it is a declared one; the names that the file then needs
    of ``transformer``, and the lines that import what else it needs.
    """
    names = ("Config", "DataConfig")
    for name, value in vars(declared).items():
        if value == corpus:
            return f"declared.{name}", names, ("from transformer.data.corpora import declared",)
    return (
        _expression(corpus, ""),
        ("Config", "Corpus", "DataConfig", "ParallelText", "TextFile"),
        (),
    )


def _expression(value: Any, indent: str) -> str:
    """A dataclass and all in it as Python, what is left at its default left out."""
    deeper = f"{indent}    "
    if dataclasses.is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)
                 if getattr(value, f.name) != f.default}  # fmt: skip
        lines = [f"{deeper}{name}={_expression(x, deeper)},\n" for name, x in given.items()]
        return f"{type(value).__name__}(\n{''.join(lines)}{indent})"
    if isinstance(value, tuple):
        items = [f"{deeper}{_expression(x, deeper)},\n" for x in cast(tuple[object, ...], value)]
        return f"(\n{''.join(items)}{indent})"
    return _literal(value)


def _literal(value: object) -> str:
    """Strings as this project writes them."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
