"""How a variant is named, found and built, and which files are never imported."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
import torch
from lightning.pytorch import LightningModule

from tests.samples import TINY_MODEL
from transformer.config import ModelConfig
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.model.encoder_decoder import Transformer
from transformer.python_files import load_file
from transformer.training.module import TransformerModule
from transformer.variant import (
    _OF_TRAINING,
    FILES_VARIABLE,
    build,
    current_name,
    load_variant,
    variant_name,
)
from transformer.variants.modern import ModernTransformer

GELU = '''
"""Mine."""

import torch.nn.functional as F

from transformer import Transformer, replace_parts
from transformer.model.encoder_decoder import FeedForward

SLOPE = 0.1  # of the negative side


class Leaky(FeedForward):
    """Never quite zero."""

    def forward(self, x):
        return self.outer(F.leaky_relu(self.inner(x), SLOPE))


class LeakyTransformer(Transformer):
    def __init__(self, config):
        super().__init__(config)
        replace_parts(self, FeedForward, lambda _: Leaky(config.d_model, config.d_ff))


LeakyTransformer.depth = 2


def unused():
    return 1
'''


def has_changed(name: str) -> bool:
    """Whether the source of a variant is known here and is not what it was."""
    return current_name(name) != name


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FILES_VARIABLE, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "mine.py"
    path.write_text(GELU)
    return path


def of(name: str) -> ModelConfig:
    return dataclasses.replace(TINY_MODEL, model=name)


def test_a_users_class_is_named_by_its_file_and_source(mine: Path) -> None:
    name = variant_name("~/mine.py:LeakyTransformer")
    module, _, digest = name.partition("@")
    assert module == "mine:LeakyTransformer" and len(digest) == 8
    loaded = load_file(mine, "table")
    assert variant_name(loaded.LeakyTransformer) == name
    torch.manual_seed(5)
    model = build(of(name))
    part = model.encoder[0].feed_forward
    assert type(model).__name__ == "LeakyTransformer" and type(part).__name__ == "Leaky"
    bound = (6 / (26 + 17)) ** 0.5  # Xavier's, drawn after the part was put in place
    assert 0.9 * bound < part.inner.weight.abs().max() <= bound
    assert not part.inner.bias.any()


@pytest.mark.parametrize(
    "statement", ['T["a"] = 2', 'T["a"]: int = 2', 'T["a"], other = 2, 3', 'T["a"] += 2']
)
def test_a_statement_that_sets_a_part_of_what_a_class_uses_counts(
    statement: str, mine: Path
) -> None:
    text = f'T = {{"a": 1}}\n{GELU}'.replace("depth = 2", "depth = T")
    mine.write_text(text)
    name = variant_name(f"{mine}:LeakyTransformer")
    mine.write_text(f"{text}\n{statement}\n")
    assert has_changed(name)


@pytest.mark.parametrize("folder", [".", "me@home", "12:30"])
def test_a_file_may_have_a_name_that_no_module_has(folder: str, mine: Path) -> None:
    (mine.parent / folder).mkdir(exist_ok=True)
    path = mine.rename(mine.parent / folder / "my variant-2.py")
    name = variant_name(f"{path}:LeakyTransformer")
    assert name.startswith("my variant-2:") and type(build(of(name))).__name__ in name


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("SLOPE = 0.1", "SLOPE = 0.2", True),
        ("leaky_relu", "rrelu", True),
        ("depth = 2", "depth = 3", True),
        ("return 1", "return 2", False),
        ('"""Never quite zero."""', '"""Another."""', False),
        ("# of the negative side", "# below zero", False),
    ],
)
def test_what_a_class_uses_counts_and_nothing_else(
    mine: Path, old: str, new: str, counts: bool
) -> None:
    name = variant_name(f"{mine}:LeakyTransformer")
    assert not has_changed(name)
    assert old in GELU
    mine.write_text(GELU.replace(old, new))
    assert has_changed(name) == counts
    refused = pytest.raises(InputError, match=r"mine.py is not the LeakyTransformer of this model")
    with refused if counts else nullcontext():
        load_variant(name)


@pytest.mark.parametrize(
    ("statement", "slope"),
    [
        ("import slopes", "slopes.SLOPE"),
        ("import slopes as module", "module.SLOPE"),
        ("try:\n    import slopes\nexcept ImportError:\n    raise", "slopes.SLOPE"),
        ("from slopes import SLOPE as steep", "steep"),
        ("from slopes import *", "SLOPE"),
    ],
)
def test_what_a_file_imports_from_its_folder_counts(
    mine: Path, monkeypatch: pytest.MonkeyPatch, statement: str, slope: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "slopes", raising=False)
    code = GELU.replace("SLOPE = 0.1  # of the negative side", statement)
    mine.write_text(code.replace(", SLOPE)", f", {slope})"))
    slopes = mine.with_name("slopes.py")
    slopes.write_text("LEVEL = 0.1\nSLOPE = LEVEL\n")
    name = variant_name(f"{mine}:LeakyTransformer")
    build(of(name))
    slopes.write_text("LEVEL = 0.2\nSLOPE = LEVEL\n")
    assert has_changed(name)


def test_of_a_package_and_a_module_with_one_name_the_package_counts(mine: Path) -> None:
    """As Python imports it."""
    mine.write_text(GELU.replace("SLOPE = 0.1  # of the negative side", "from slopes import SLOPE"))
    mine.with_name("slopes.py").write_text("SLOPE = 0.1\n")
    (package := mine.with_name("slopes")).mkdir()
    (package / "__init__.py").write_text("SLOPE = 0.1\n")
    name = variant_name(f"{mine}:LeakyTransformer")
    mine.with_name("slopes.py").write_text("SLOPE = 0.2\n")
    assert not has_changed(name)
    (package / "__init__.py").write_text("SLOPE = 0.2\n")
    assert has_changed(name)


def test_text_below_a_docstring_counts_each_time(mine: Path) -> None:
    mine.write_text(GELU.replace('zero."""', 'zero."""\n    """Or so."""'))
    assert not has_changed(variant_name(f"{mine}:LeakyTransformer"))


def test_an_installed_class_needs_no_file_and_its_neighbours_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The modern model is put together from three files."""
    name = variant_name(ModernTransformer)
    assert variant_name("transformer.variants.modern:ModernTransformer") == name
    assert load_variant(name) is ModernTransformer
    assert not has_changed(name)
    read = Path.read_bytes

    def edited(path: Path) -> bytes:
        return read(path).replace(b"silu", b"relu") if path.name == "layers.py" else read(path)

    monkeypatch.setattr(Path, "read_bytes", edited)
    assert has_changed(name)


def test_a_file_that_was_not_given_is_never_imported(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = variant_name(f"{mine}:LeakyTransformer")
    monkeypatch.setenv(FILES_VARIABLE, "")
    monkeypatch.chdir(mine.parent)
    monkeypatch.syspath_prepend(str(mine.parent))
    mine.write_text("raise SystemExit('imported')")
    with pytest.raises(InputError, match=r"a class is in mine, .*add --variant …/mine\.py"):
        load_variant(name)
    assert "mine" not in sys.modules


def test_a_file_that_was_moved_is_asked_for(mine: Path) -> None:
    name = variant_name(f"{mine}:LeakyTransformer")
    mine.rename(mine.with_name("elsewhere.py"))
    assert not has_changed(name)
    with pytest.raises(InputError, match=r"a class is in mine, .*add --variant …/mine\.py"):
        load_variant(name)


STARTS = """
import torch
from torch import nn

from transformer import Transformer


class NoOp(Transformer):
    def rows(self):  # a helper
        return 2


class Redrawn(Transformer):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.encoder:
            layer.gate = nn.Linear(config.d_model, 1)
        self.encoder[0].feed_forward.inner = nn.Linear(config.d_model, 2 * config.d_ff)
        self.encoder[0].feed_forward.outer = nn.Linear(2 * config.d_ff, config.d_model)

    def reset_parameters(self):
        if hasattr(self.encoder[0], "gate"):
            nn.init.orthogonal_(self.encoder[0].gate.weight)
        super().reset_parameters()
        key = self.encoder[1].self_attention.key_value.weight
        with torch.no_grad():
            key[0].normal_()
            while key[0, 0] < 1.0:  # not the same draw each time
                key[0].normal_()


class Halved(NoOp):
    def reset_parameters(self):
        super().reset_parameters()
        with torch.no_grad():
            self.embedding.weight *= 0.5
"""


def starting_weights(config: ModelConfig, seed: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return build(config).state_dict()


def test_what_a_variant_leaves_as_it_is_starts_as_in_the_base(mine: Path) -> None:
    mine.write_text(STARTS)
    base = starting_weights(TINY_MODEL)
    same = starting_weights(of(variant_name(f"{mine}:NoOp")))
    assert same.keys() == base.keys() and all(torch.equal(same[x], base[x]) for x in base)
    halved = starting_weights(of(variant_name(f"{mine}:Halved")))
    assert torch.equal(halved["embedding.weight"], 0.5 * base["embedding.weight"])
    redrawn = starting_weights(of(variant_name(f"{mine}:Redrawn")))
    changed = {x for x in base if redrawn[x].shape == base[x].shape}
    changed = {x for x in changed if not torch.equal(redrawn[x], base[x])}
    assert changed == {"encoder.1.self_attention.key_value.weight"}
    again = starting_weights(of(variant_name(f"{mine}:Redrawn")))
    assert all(torch.equal(again[x], redrawn[x]) for x in redrawn)
    other = starting_weights(of(variant_name(f"{mine}:Redrawn")), seed=4)
    assert not any(torch.equal(other[x], redrawn[x]) for x in redrawn if "gate" in x)


@pytest.mark.parametrize(
    ("method", "door"),
    [
        ("def optimizer(self, config): pass", r"write def optimizer\(self\): … of self.model in"),
        ("def configure_optimizers(self): pass", r"row\(…, method=Mine\)"),
        ("schedule = 'cosine'", r"class Mine\(TransformerModule\)"),
        ("def learning_rate(self, step): pass", r"row\(…, method=Mine\)"),
        ("def training_step(self, batch, index): pass", "a variant is only a model"),
        ("loss = staticmethod(len)", "a variant is only a model"),
        ("def on_train_batch_end(self): pass", "a variant is only a model"),
    ],
)
def test_a_method_that_nobody_calls_is_refused(method: str, door: str, mine: Path) -> None:
    mine.write_text(f"{STARTS}\n\nclass Trained(NoOp):\n    {method}\n")
    name = method.removeprefix("def ").partition("(")[0].split()[0]
    with pytest.raises(InputError, match=f"Trained in .*mine.py has {name}, .*{door}"):
        load_variant(variant_name(f"{mine}:Trained"))


def test_every_method_of_training_is_refused() -> None:
    """Those of the module that trains are Lightning's, or listed."""
    own = {name for name in vars(TransformerModule) if not name.startswith("_")}
    of_model = {"states"}  # a part of the model too
    assert {name for name in own if not callable(getattr(LightningModule, name, None))} <= {
        *_OF_TRAINING,
        *of_model,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Gelu", "names no class: write FILE.py:Class or module:Class"),
        ("nowhere.py:Gelu", "there is no file nowhere.py"),
        ("nowhere:Gelu", "a class is in nowhere, which is not installed"),
        ("transformer.variants.layers:Missing", "there is no Missing in"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        variant_name(text)
    assert "\n" not in str(caught.value)


def test_a_class_of_a_notebook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(InputError, match=r"^Cell is in no file: write it into a FILE\.py"):
        variant_name(type("Cell", (Transformer,), {"__module__": "__main__"}))


def test_what_is_no_variant_or_cannot_be_built_is_refused(mine: Path) -> None:
    mine.write_text("class Other:\n    pass\n")
    with pytest.raises(
        InputError, match=r"Other in .* is not a subclass of transformer\.Transformer"
    ):
        load_variant(variant_name(f"{mine}:Other"))
    mine.write_text(f"from math import *\n{GELU}")
    with pytest.raises(
        InputError, match=r"Lekay in .* is not a subclass of transformer\.Transformer"
    ):
        load_variant(variant_name(f"{mine}:Lekay"))
    mine.write_text(GELU.replace("super().__init__(config)", "1 / 0"))
    with pytest.raises(InputError, match="cannot be built: ZeroDivisionError"):
        build(of(variant_name(f"{mine}:LeakyTransformer")))
    mine.write_text("class (")
    with pytest.raises(InputError, match="cannot be read as Python"):
        variant_name(f"{mine}:LeakyTransformer")


def test_an_installed_class_that_lacks_something_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.import_module", mock.Mock(side_effect=ImportError("no flash")))
    with pytest.raises(InputError, match=r"modern\.py cannot be imported \(no flash\): install"):
        load_variant(variant_name(ModernTransformer))


def test_a_variant_that_breaks_the_cache_is_caught() -> None:
    class Forgetful(Transformer):
        def __init__(self, config: ModelConfig) -> None:
            super().__init__(config)
            for layer in self.decoder:  # the first word's keys are what every word would have
                layer.self_attention.register_forward_pre_hook(
                    lambda _, given: (given[0], given[1] / given[1].size(2), *given[2:])
                )

    torch.manual_seed(3)
    check_cache(silent := Transformer(TINY_MODEL))
    torch.nn.init.zeros_(silent.embedding.weight)
    check_cache(silent)
    model = Forgetful(TINY_MODEL)
    with pytest.raises(InputError, match="Forgetful gives other logits word by word than for"):
        check_cache(model)
    assert model.training  # as it was
    softer = type("Softer", (Transformer,), {"forward": lambda self, src, tgt: 0.0})
    with pytest.raises(InputError, match="Softer replaces forward, which is not trained"):
        check_cache(softer(TINY_MODEL))


FROZEN = TINY_MODEL.vocab_size * TINY_MODEL.d_model


@pytest.mark.parametrize(
    ("old", "new", "fewer"),
    [
        ("replace_parts(self", "self.embedding.weight.sum().item(), replace_parts(self", 0),
        ("SLOPE))", "abs(x.mean().item())))", 0),
        ("replace_parts(self", "self.embedding.requires_grad_(False), replace_parts(self", FROZEN),
    ],
    ids=["reads a weight", "reads an activation", "trains no embedding"],
)
def test_parameters_and_flops_are_counted_whatever_a_model_does(
    old: str, new: str, fewer: int, mine: Path
) -> None:
    plain = of(variant_name(f"{mine}:LeakyTransformer"))
    mine.write_text(GELU.replace(old, new))
    config = of(variant_name(f"{mine}:LeakyTransformer"))
    assert config != plain and count_parameters(config) == count_parameters(TINY_MODEL) - fewer
    assert training_flops(config, 5, 7) == training_flops(TINY_MODEL, 5, 7)


# In place of one line of a file, and of another that changes what the class is.
@pytest.mark.parametrize(
    ("line", "changed", "counts"),
    [
        ('S = {}; S["a"] = 1', 'S = {}; S["a"] = 2', True),
        ("S = []; S.append(1)", "S = []; S.append(2)", True),
        ("S = []\nfor i in range(3): S.append(i)", "S = []\nfor i in range(4): S.append(i)", True),
        ("S = 1\nS += 1", "S = 1\nS += 2", True),
        ("try:\n    import none\nexcept ImportError:\n    def S(): return 1", None, True),
        ("async def S(): return 1", None, True),
        ("match 1:\n    case S: pass", "match 2:\n    case S: pass", True),
        ('globals()["S"] = 1', 'globals()["S"] = 2', True),
        ("S = 0; import torch; torch.set_default_dtype(1)", None, True),
        ("S = {}\ndef keep(f): S[1] = f\n@keep\ndef f(): return 1", None, True),
        ("from helpers.h import S", None, True),
        ("import importlib; S = importlib.import_module('helpers.h')", None, True),
        ('def f():\n    """1"""\nS = int(f.__doc__)', None, True),
        ("S = 0; ROWS = []; ROWS.append(1)", None, False),
        ("S = 0\nROWS = []\nfor i in (1, 2): ROWS.append(V)", None, False),
        ("S = 0\nclass Other:\n    x = 1", None, False),
        ("S = 0\nif __name__ == '__main__':\n    print(1)", None, False),
    ],
)
def test_what_a_file_does_beyond_binding_names_counts_if_it_may_matter(
    line: str, changed: str | None, counts: bool, tmp_path: Path
) -> None:
    (tmp_path / "helpers").mkdir()
    helper, file = tmp_path / "helpers" / "h.py", tmp_path / "v.py"
    helper.write_text("S = 1\n")
    after = "from transformer import Transformer\nclass V(Transformer):\n    slope = S\n"
    file.write_text(f"{line}\n{after}")
    name = variant_name(f"{file}:V")
    if "helpers" in line:
        helper.write_text("S = 2\n")
    else:
        file.write_text(f"{changed or line.replace('1', '5')}\n{after}")
    assert has_changed(name) == counts
