"""An exported model: a folder with safetensors, configuration and vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from transformer.config import ModelConfig, from_dict
from transformer.data.prepared import VOCABULARY_FILE
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError, require
from transformer.files import check_plain, read_json
from transformer.model.encoder_decoder import Transformer
from transformer.variant import build

WEIGHTS_FILE = "model.safetensors"
_CONFIG_FILE = "config.json"


def load_pretrained(directory: Path | str) -> tuple[Transformer, Vocabulary]:
    """Load the model and the vocabulary of a safetensors export, for ``translate``.

    Its files may be links, as in the cache of a hub.

    Raises:
        InputError: if the folder holds no export, or a damaged one.
    """
    path = Path(directory) / _CONFIG_FILE
    try:
        values = read_json(path.resolve())["config"]["model"]
    except (InputError, KeyError, TypeError) as error:
        reason = f"{path} cannot be used ({error!r})"
        raise InputError(f"{directory} is not an export: {reason}") from error
    config = from_dict(ModelConfig, values, str(path))
    if not (Path(directory) / WEIGHTS_FILE).is_file():
        raise InputError(
            f"{directory} holds no {WEIGHTS_FILE}: python -m experiments export {directory} "
            "--format safetensors writes a folder that can be loaded"
        )
    words = (Path(directory) / VOCABULARY_FILE).resolve()
    check_plain(words)
    vocabulary = Vocabulary(words)
    if len(vocabulary) != config.vocab_size:
        raise InputError(
            f"{directory} holds {len(vocabulary):,} word-pieces for a model with "
            f"{config.vocab_size:,}: export it again"
        )
    return load_weights(config, Path(directory)), vocabulary


def load_weights(config: ModelConfig, directory: Path) -> Transformer:
    """A model of ``config`` with the weights in ``directory``, on the CPU."""
    require("safetensors")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = directory / WEIGHTS_FILE
    check_plain(path.resolve(), 2**36)
    model = build(config)
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be used: {reason}; export it again") from error
    return model.eval()


def save_weights(weights: Mapping[str, Tensor], directory: Path) -> None:
    """Write weights, such as a model's ``state_dict()``, into an existing folder."""
    require("safetensors")
    from safetensors.torch import save

    # Copies, as a variant's layers may share weights, which safetensors refuses.
    copies = {name: weight.cpu().contiguous().clone() for name, weight in weights.items()}
    (directory / WEIGHTS_FILE).write_bytes(save(copies, {"format": "pt"}))
