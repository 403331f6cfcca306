"""The Transformer of "Attention Is All You Need".

It exports everything needed to train with your own Lightning Trainer. Names that need torch are
imported on first use.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    override,
)
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.corpora.declared import (
    CLDR_EN_DE,
    MULTI30K_EN_DE,
    MULTI30K_EN_FR,
    WMT14_EN_DE,
    WMT14_EN_DE_SMALL,
    WMT14_EN_FR,
    sacrebleu_set,
)
from transformer.data.corpora.folders import files_corpus, folder_corpus
from transformer.errors import InputError
from transformer.variant import replace_parts, variant_name

if TYPE_CHECKING:
    from transformer.data.module import TranslationDataModule
    from transformer.evaluation.bleu import bleu, chrf, tokenised_bleu
    from transformer.evaluation.perplexity import perplexity, translate
    from transformer.model.encoder_decoder import Transformer
    from transformer.pretrained import load_pretrained
    from transformer.training.method import make_module
    from transformer.training.module import TransformerModule

_MODULE_OF = {
    "TranslationDataModule": "data.module",
    "bleu": "evaluation.bleu",
    "chrf": "evaluation.bleu",
    "tokenised_bleu": "evaluation.bleu",
    "perplexity": "evaluation.perplexity",
    "translate": "evaluation.perplexity",
    "Transformer": "model.encoder_decoder",
    "load_pretrained": "pretrained",
    "TransformerModule": "training.module",
    "make_module": "training.method",
}

# oneDNN, which multiplies bf16 on CPUs, caches the code it compiles for each shape of a matmul.
# Every batch has new shapes, so its two caches of 1,024 entries grow to gigabytes; 64 are as fast.
# They are read at the first matmul, and a value that the user has set is kept.
for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "64")

__all__ = [  # noqa: RUF022 - in the order in which they are needed
    "Config",
    "ModelConfig",
    "DataConfig",
    "TrainingConfig",
    "DecodingConfig",
    "override",
    "CLDR_EN_DE",
    "MULTI30K_EN_DE",
    "MULTI30K_EN_FR",
    "WMT14_EN_DE",
    "WMT14_EN_FR",
    "WMT14_EN_DE_SMALL",
    "Corpus",
    "ParallelText",
    "TextFile",
    "sacrebleu_set",
    "files_corpus",
    "folder_corpus",
    "TransformerModule",
    "make_module",
    "TranslationDataModule",
    "Transformer",
    "replace_parts",
    "variant_name",
    "load_pretrained",
    "translate",
    "bleu",
    "chrf",
    "tokenised_bleu",
    "perplexity",
    "InputError",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'transformer' has no attribute {name!r}")
    return getattr(import_module(f"transformer.{_MODULE_OF[name]}"), name)
