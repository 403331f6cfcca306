"""Name, find and build variants, and find methods.

A name is ``module:Class@digest``, with a digest of the source. The module is an installed one, or
the name of a file that was given on the command line; nothing else is ever imported. Importing
this module does not import torch.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from transformer.config import Config, ModelConfig, override
from transformer.errors import BlockedError, InputError, in_one_line
from transformer.fields import NO_OPTIONS, Options, Value
from transformer.files import expand_user
from transformer.python_files import load_file
from transformer.sources import definitions, is_installed, module_file

Kind = TypeVar("Kind")

if TYPE_CHECKING:
    from torch import nn

    from transformer.model.encoder_decoder import Transformer

    Part = TypeVar("Part", bound=nn.Module)

# The files that may be imported, as JSON, for the processes that this one starts.
FILES_VARIABLE = "TRANSFORMER_VARIANTS"
# By name: a process keeps the class that it began with, even if its file is edited meanwhile.
_LOADED: dict[str, type[Any]] = {}
# By file and class: the digest, and the content of each file that it was made of.
_DIGESTS: dict[tuple[Path, str], tuple[str, dict[Path, bytes]]] = {}
# Names of training besides Lightning's own: a variant that has them expects them to be called.
_OF_TRAINING = (
    *("learning_rate", "loss", "optimizer", "per_target", "schedule", "scored_weights"),
    *("sums", "take_step", "training_loss"),
)
# Classes of earlier versions, and the model and the method that are equal to them now.
_VARIANTS = f"{__package__}.variants"
_ADAMW: tuple[str, dict[str, Value]] = (
    f"{_VARIANTS}.optimizers:AdamW@e60640c8",
    {"weight_decay": 0.1},
)
_MOVED: dict[str, tuple[str | None, str, dict[str, Value]]] = {
    f"{_VARIANTS}.optimizers:AdamWTransformer@576340d0": (None, *_ADAMW),
    f"{_VARIANTS}.optimizers:MuonTransformer@ff84ac14": (
        None,
        f"{_VARIANTS}.optimizers:Muon@30054f62",
        {},
    ),
    f"{_VARIANTS}.modern:ModernTransformer@70af332f": (
        f"{_VARIANTS}.modern:ModernTransformer@dc18b72a",
        *_ADAMW,
    ),
    f"{_VARIANTS}.modern_relative:ModernRelativeTransformer@e569cff7": (
        f"{_VARIANTS}.modern_relative:ModernRelativeTransformer@3e732024",
        *_ADAMW,
    ),
}


def replace_parts(model: nn.Module, kind: type[Part], make: Callable[[Part], nn.Module]) -> None:
    """Replace each part of ``model`` that is a ``kind`` by ``make(part)``."""
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, kind):
                setattr(parent, name, make(part))


def build(config: ModelConfig) -> Transformer:
    """The model of ``config``, its weights drawn from torch's current generator.

    A variant starts from the weights that the base would draw here, where it has the same ones.
    """
    import torch

    from transformer.initialisation import draw_states, reset_from
    from transformer.model.encoder_decoder import Transformer

    if config.model in _MOVED:
        config = replace(config, model=_MOVED[config.model][0])
    if config.model is None:
        return Transformer(config)
    kind = load_variant(config.model)
    start = torch.get_rng_state()
    states = draw_states(lambda: Transformer(replace(config, model=None, options=NO_OPTIONS)))
    torch.set_rng_state(start)
    try:
        model = kind(config, **dict(config.options))
        reset_from(model, states)  # again, as some parts may have been put in place since
    except Exception as error:  # any failure of a user's class is bad input
        message = in_one_line(error)
        raise InputError(f"the variant {config.model} cannot be built: {message}") from error
    return model


def classes_of(config: Config) -> list[str]:
    """The names of the classes by which a configuration replaces the paper's."""
    return [name for name in (config.model.model, config.training.method) if name is not None]


def current(config: Config) -> Config:
    """``config`` with classes of earlier versions replaced by what is equal to them now."""
    moved = _MOVED.get(config.model.model or "")
    if moved is None:
        return config
    model, method, options = moved
    return override(config, model=model, method=method, method_options=Options.of(options))


def load(name: str, of: type[Kind], word: str) -> type[Kind]:
    """The class called ``name``, a subclass ``of`` another; ``word`` says what it is for.

    Raises:
        BlockedError: if its file is missing, or is not the one that the name was made of.
    """
    if name not in _LOADED:
        _check_source(name, word)
        found = _import(name, of, word)
        _check_source(name, word)  # it may have been edited while it was imported
        _LOADED[name] = found
    return _LOADED[name]


def _check_source(name: str, word: str) -> None:
    """Check that the source of a class is what it was."""
    module, kind, digest = split_name(name)
    try:
        source, now = source_of(module), source_digest(module, kind)
    except InputError as error:  # such as a file that is being edited
        raise BlockedError(str(error)) from error
    if now != digest:
        raise BlockedError(
            f"{kind} in {source} is not the {kind} of this {word} (digest {now}, not {digest}): "
            "restore its source, which the run's source.json has, or train again"
        )


def load_function(name: str) -> Callable[..., Any]:
    """The function called ``name``; functions are named like classes.

    Raises:
        InputError: if its file is missing, or is not the one that the name was made of.
    """
    module, kind, digest = split_name(name)
    function, source = _imported(name)
    if source_digest(module, kind) != digest:
        raise InputError(f"{kind} in {source} has changed since: run the table again")
    if not callable(function):
        raise InputError(f"{kind} in {source} is not a function")
    return function


def _imported(name: str) -> tuple[Any, Path]:
    """The module's object of this name, or None, and the file of the module."""
    module, kind, _ = split_name(name)
    source = source_of(module)
    try:
        is_file = module in _trusted()
        code = load_file(source, "variant") if is_file else importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{source} cannot be imported ({error}): install what it needs") from error
    return getattr(code, kind, None), source


def _import(name: str, of: type[Kind], word: str) -> type[Kind]:
    variant, source = _imported(name)
    if not (isinstance(variant, type) and issubclass(variant, of)):
        kind = split_name(name)[1]
        raise InputError(
            f"{kind} in {source} is not a subclass of transformer.{of.__name__}, which {word} takes"
        )
    return variant


def split_name(name: str) -> tuple[str, str, str]:
    """The module, the class and the digest of a name."""
    path, _, digest = name.partition("@")
    module, _, kind = path.rpartition(":")
    return module, kind, digest


def load_variant(name: str) -> type[Transformer]:
    """The class of the variant called ``name``."""
    from transformer.model.encoder_decoder import Transformer

    variant = load(name, Transformer, "model")
    _refuse_unused_methods(variant)
    return variant


def _refuse_unused_methods(variant: type[Transformer]) -> None:
    """Refuse a variant with a method that is named like one of training's: it is never called."""
    from transformer.model.encoder_decoder import Transformer

    kinds = [kind for kind in variant.__mro__ if kind not in Transformer.__mro__]
    for name in sorted({name for kind in kinds for name in vars(kind)}):
        if hasattr(Transformer, name) or not _is_of_training(name, getattr(variant, name)):
            continue
        hint = "class Mine(TransformerModule): …, and row(…, method=Mine)"
        if name == "optimizer":
            hint = f"def optimizer(self): … of self.model in {hint}"
        raise InputError(
            f"{variant.__name__} in {inspect.getfile(variant)} has {name}, which is not called: a "
            f"variant is only a model, and how it is trained is a method of its own; write {hint}"
        )


def _is_of_training(name: str, value: object) -> bool:
    if name in _OF_TRAINING:
        return True
    if name.startswith("_") or not inspect.isroutine(value):
        return False
    from lightning.pytorch import LightningModule  # takes seconds, and few variants come this far

    return inspect.isroutine(getattr(LightningModule, name, None))


def variant_name(variant: type[nn.Module] | Callable[..., Any] | str) -> str:
    """The name of a class or a function, with the digest of its source now.

    Args:
        variant: the class itself, ``module:Class`` or ``FILE.py:Class``; such a file is trusted

    Raises:
        InputError: if there is no such class.
    """
    if isinstance(variant, str):
        module, colon, kind = variant.rpartition(":")
        kind = kind.partition("@")[0]
        if not colon or not kind:
            raise InputError(f"{variant!r} names no class: write FILE.py:Class or module:Class")
        file = expand_user(module) if module.endswith(".py") else None
    else:
        module, kind = variant.__module__, variant.__qualname__
        try:
            file = None if is_installed(module) else Path(inspect.getfile(variant))
        except (OSError, TypeError) as error:  # as of a notebook
            raise InputError(f"{kind} is in no file: write it into a FILE.py") from error
    if file is not None:
        trust(file)
        module = file.stem
    return f"{module}:{kind}@{source_digest(module, kind)}"


def current_name(name: str) -> str:
    """The name with the digest of the source now; unchanged if the source is not here."""
    if name in _MOVED:
        return name
    module, kind, _ = split_name(name)
    with suppress(InputError):
        return f"{module}:{kind}@{source_digest(module, kind)}"
    return name


def class_name(name: str) -> str:
    """The class in a name, without its module and digest."""
    return split_name(name)[1]


def trust(*paths: Path) -> None:
    """Allow the classes of files to be imported, here and in processes that this one starts."""
    for path in paths:
        if not path.is_file():
            raise InputError(f"there is no file {path}")
    files = _trusted() | {path.stem: path.resolve() for path in paths}
    os.environ[FILES_VARIABLE] = json.dumps([str(path) for path in files.values()])


def _trusted() -> dict[str, Path]:
    paths = map(Path, json.loads(os.environ.get(FILES_VARIABLE) or "[]"))
    return {path.stem: path for path in paths}


def source_of(module: str) -> Path:
    """The file of a module."""
    if (file := _trusted().get(module)) and file.is_file():
        return file
    with suppress(ImportError, ValueError):
        if is_installed(module) and (file := _installed_file(module)):
            return file
    name = f"{module.rpartition('.')[2]}.py"
    raise InputError(f"a class is in {module}, which is not installed: add --variant …/{name}")


def _installed_file(module: str) -> Path | None:
    """The file of a module, found without importing the packages above it."""
    package, _, inside = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not inside:
        return Path(spec.origin) if spec and spec.origin else None
    files = (module_file(Path(folder), inside) for folder in spec.submodule_search_locations or ())
    return next(filter(None, files), None)


def is_own(name: str) -> bool:
    """Whether a class is the user's own, and not one of the project."""
    return split_name(name)[0].partition(".")[0] != __package__


def source_file(name: str) -> Path:
    """The file of a class, by its name.

    Raises:
        InputError: if it is not known here.
    """
    return source_of(split_name(name)[0])


def source_digest(module: str, kind: str) -> str:
    """A hash of all that defines a class, see :mod:`transformer.sources`."""
    file = source_of(module)
    digest, contents = _DIGESTS.get((file, kind), ("", {}))
    if not contents or {path: _content(path) for path in contents} != contents:
        needed, files = definitions(module, kind, file)
        digest = digest_of(needed)
        _DIGESTS[file, kind] = digest, {path: _content(path) for path in files}
    return digest


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def digest_of(needed: set[str]) -> str:
    """The digest of the statements that define a class."""
    return hashlib.sha256("\n".join(sorted(needed)).encode()).hexdigest()[:8]
