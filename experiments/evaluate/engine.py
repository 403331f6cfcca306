"""Which program carries out the search: our own decoder, or CTranslate2."""

from __future__ import annotations

from pathlib import Path

from transformer.config import DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.errors import require
from transformer.evaluation.perplexity import Decode
from transformer.model.encoder_decoder import Transformer


def open_engine(
    name: str, model: Transformer, vocabulary: Vocabulary, config: DecodingConfig
) -> Decode | None:
    """The search of the engine ``torch``, as None, or ``ctranslate2``.

    Raises:
        InputError: if the engine is not installed.
    """
    return open_ctranslate2(model, vocabulary, config) if name == "ctranslate2" else None


def open_ctranslate2(
    model: Transformer,
    vocabulary: Vocabulary,
    config: DecodingConfig,
    *,
    folder: Path | None = None,
) -> Decode:
    """The search by CTranslate2, of ``model``'s weights or of an export of it in ``folder``.

    Raises:
        InputError: if it is not installed.
    """
    require("ctranslate2")
    from experiments.export.ctranslate2_engine import CTranslate2Decoder

    return CTranslate2Decoder(model, vocabulary, config, folder=folder).decode
