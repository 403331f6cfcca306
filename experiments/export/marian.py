"""The paper's model as Marian's in Hugging Face transformers."""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.evaluate.trained import TrainedModel
from experiments.export.weights import attention_weights, copied, learned_positions, output_bias
from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, DecodingConfig, ModelConfig
from transformer.decoding import decode_sentences
from transformer.errors import InputError
from transformer.files import write_json
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import FeedForward, PostNorm, Transformer
from transformer.pretrained import save_weights

# Marian's model refuses a sentence with more word-pieces.
_POSITIONS = 1_024
_SENTENCES_PER_BATCH = 64


def check_marian(trained: TrainedModel) -> None:
    """Check that Marian's classes can express the model.

    Raises:
        InputError: for a variant, a parser, or heads that are wider than ``d_model / num_heads``.
    """
    model, config = trained.model, trained.model.config
    use = "use --format safetensors"
    if type(model) is not Transformer:
        raise InputError(f"transformers' Marian has no {type(model).__name__}: {use}")
    if trained.constrain is not None:
        raise InputError(f"a parser writes trees only, which transformers cannot ensure: {use}")
    width = config.d_model / config.num_heads
    if not width.is_integer():
        raise InputError(
            f"Marian's heads share d_model, but {config.num_heads} do not divide "
            f"{config.d_model}: {use} or ctranslate2"
        )
    if max(config.d_k, config.d_v) > width:
        raise InputError(
            f"Marian's heads are d_model / num_heads = {width:g} wide, which is less than "
            f"d_k {config.d_k} or d_v {config.d_v}: {use} or ctranslate2"
        )


def write_marian_model(trained: TrainedModel, folder: Path) -> None:
    """Write weights, vocabulary and settings into an existing folder, for ``MarianMTModel`` and
    ``MarianTokenizer``; ``folder`` holds ``source.spm`` and ``target.spm`` already.
    """
    check_marian(trained)
    save_weights(marian_weights(trained.model), folder)
    for name, values in _settings(trained).items():
        write_json(folder / name, values)


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """The weights by Marian's names.

    Marian lays its sinusoids out as all sines, then all cosines, and section 3.5 in turn. Hence
    the ``d_model`` columns are put in Marian's order throughout, which changes no product. (A table
    of our own would be lost as soon as transformers saves the model, as are learned positions.)
    """
    config = model.config
    order = torch.arange(config.d_model)
    if config.positions == "sinusoidal":
        order = torch.cat([order[0::2], order[1::2]])
    weights = {
        "model.shared.weight": copied(model.embedding.weight[: config.vocab_size])[:, order],
        "final_logits_bias": output_bias(config.vocab_size)[None],
    }
    positions = learned_positions(model.embedding, _POSITIONS)
    stacks: Mapping[str, Sequence[nn.Module]] = {"encoder": model.encoder, "decoder": model.decoder}
    for stack, layers in stacks.items():
        if positions is not None:
            weights[f"model.{stack}.embed_positions.weight"] = positions
        for number, layer in enumerate(layers):
            for name, weight in _weights_of_layer(layer, config, order):
                weights[f"model.{stack}.layers.{number}.{name}"] = weight
    return weights


# Marian's names for our parts of a layer.
_PARTS = {
    "self_attention": "self_attn",
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention": "encoder_attn",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm",
}


def _weights_of_layer(
    layer: nn.Module, config: ModelConfig, order: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """The weights of an encoder's or a decoder's layer by Marian's names."""
    for name, part in layer.named_children():
        if isinstance(part, MultiHeadAttention):
            for matrix, weight in _attention(part, config, order):
                yield f"{_PARTS[name]}.{matrix}", weight
        elif isinstance(part, PostNorm):
            yield f"{_PARTS[name]}.weight", copied(part.norm.weight)[order]
            yield f"{_PARTS[name]}.bias", copied(part.norm.bias)[order]
        elif isinstance(part, FeedForward):
            yield "fc1.weight", copied(part.inner.weight)[:, order]
            yield "fc1.bias", copied(part.inner.bias)
            yield "fc2.weight", copied(part.outer.weight)[order]
            yield "fc2.bias", copied(part.outer.bias)[order]


def _attention(
    attention: MultiHeadAttention, config: ModelConfig, order: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Marian's four matrices, and its biases, which the paper's model does not have."""
    width = config.d_model // config.num_heads
    query, key, value, output = attention_weights(attention, width)
    query *= math.sqrt(width / config.d_k)  # as Marian divides by √width instead of √d_k
    for name, weight in (("q", query), ("k", key), ("v", value)):
        yield f"{name}_proj.weight", weight[:, order]
        yield f"{name}_proj.bias", torch.zeros(len(weight))
    yield "out_proj.weight", output[order]
    yield "out_proj.bias", torch.zeros(len(output))


def _settings(trained: TrainedModel) -> dict[str, dict[str, Any]]:
    """The JSON files of the folder."""
    config, decoding = trained.model.config, trained.experiment.config.decoding
    corpus = trained.experiment.config.data.corpus
    ids = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    stacks: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        stacks[f"{stack}_layers"] = config.num_layers
        stacks[f"{stack}_ffn_dim"] = config.d_ff
        stacks[f"{stack}_attention_heads"] = config.num_heads
        stacks[f"{stack}_layerdrop"] = 0.0
    model = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "d_model": config.d_model,
        **stacks,
        "activation_function": "relu",
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": _POSITIONS,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "use_cache": True,
        **ids,
    }
    search: dict[str, Any] = {"max_length": _POSITIONS // 2, "num_beams": decoding.beam_size}
    if decoding.beam_size > 1:
        # It ends as ours does: when as many hypotheses have finished.
        search |= {"early_stopping": True, "length_penalty": decoding.length_penalty}
    pieces = trained.vocabulary.pieces()
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": corpus.source_language,
        "target_lang": corpus.target_language,
        "pad_token": pieces[PAD_ID],
        "unk_token": pieces[UNK_ID],
        "eos_token": pieces[EOS_ID],
        "model_max_length": _POSITIONS // 2,
        "clean_up_tokenization_spaces": False,  # or spaces before punctuation go
    }
    return {
        "config.json": model,
        "generation_config.json": {**ids, **search},
        "tokenizer_config.json": tokenizer,
        "vocab.json": {piece: number for number, piece in enumerate(pieces)},
    }


def compare_with_transformers(
    trained: TrainedModel, folder: Path, lines: Sequence[str]
) -> tuple[dict[str, int], int]:
    """How many lines transformers splits and translates as we do, by kind, and of how many.

    Beam search is compared without length penalties, as those of the two differ; sentences of one
    length are searched at a time, as transformers has one limit for all. Lines that are empty or
    too long are left out.
    """
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder)).eval()
    extra = trained.experiment.config.decoding.max_extra_length
    encoded = trained.vocabulary.encode(list(lines))
    kept = [row for row, source in enumerate(encoded) if 1 < len(source) < _POSITIONS - extra]
    sources = [encoded[row] for row in kept]
    split = [tokenizer(lines[row])["input_ids"] for row in kept]
    same = {"word-pieces": sum(x == y for x, y in zip(split, sources, strict=True))}
    beams = {1, trained.experiment.config.decoding.beam_size}
    for beam in sorted(beams):
        search = DecodingConfig(beam_size=beam, length_penalty=0.0, max_extra_length=extra)
        ours = dict(decode_sentences(trained.model, sources, search))
        found = _translate(theirs, sources, search)
        same["greedy search" if beam == 1 else f"beam {beam}"] = sum(
            found[row] == ours[row] for row in ours
        )
    return same, len(kept)


@torch.inference_mode()
def _translate(
    theirs: Any, sources: Sequence[list[int]], search: DecodingConfig
) -> list[list[int]]:
    """The translations by transformers, without the end of sentence."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, source in enumerate(sources):
        by_length[len(source)].append(row)
    found: list[list[int]] = [[] for _ in sources]
    beam: dict[str, Any] = {"num_beams": search.beam_size}
    if search.beam_size > 1:
        beam |= {"early_stopping": True, "length_penalty": search.length_penalty}
    for length, rows in by_length.items():
        limit = 1 + length + search.max_extra_length  # with the begin of sentence
        for start in range(0, len(rows), _SENTENCES_PER_BATCH):
            batch = rows[start : start + _SENTENCES_PER_BATCH]
            tokens = torch.tensor([sources[row] for row in batch])
            settings = {"attention_mask": torch.ones_like(tokens), "max_length": limit, **beam}
            for row, written in zip(batch, theirs.generate(tokens, **settings), strict=True):
                ids = written.tolist()[1:]
                found[row] = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
    return found
