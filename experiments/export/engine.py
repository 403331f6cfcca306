"""The paper's model (sections 3.1 to 3.5) in CTranslate2.

CTranslate2 ends a search as ours does: when as many hypotheses have finished as the beam is wide.
Two differences are evened out here: its formula for the length penalty is another one, and it
returns only the likeliest of the finished hypotheses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
from torch import Tensor, nn

from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences, length_penalty
from transformer.errors import InputError
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import sinusoids
from transformer.model.encoder_decoder import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PostNorm,
    Transformer,
)

# Rows of the table of positions; CTranslate2 refuses a sentence that needs more.
_POSITIONS = 2_048
# Added to the logits of padding and begin, which our search never chooses either. fp16 can hold
# the number, and no logit outweighs it.
_NEVER = -1e4
# Source word-pieces per batch, with padding. With larger batches, cores wait for each other.
_TOKENS_PER_BATCH = 1_024
# Leaves log p unchanged. Not zero: with zero, the search may end when its best has finished.
_NO_PENALTY = 1e-30


def write_ctranslate2_model(
    model: Transformer, vocabulary: Vocabulary, folder: Path, quantization: str | None = None
) -> None:
    """Write ``model`` into an existing folder: weights, vocabulary and CTranslate2's settings.

    Args:
        quantization: what CTranslate2 calls a type, such as int8 or float16; None for float32
    """
    if type(model) is not Transformer:
        raise InputError(
            f"CTranslate2 has no {type(model).__name__}: use --engine torch, or --format "
            "safetensors"
        )
    spec = TransformerSpec(*_specify(model))
    pieces = vocabulary.pieces()
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    config: Any = spec.config
    config.unk_token, config.eos_token = pieces[UNK_ID], pieces[EOS_ID]
    config.bos_token = config.decoder_start_token = pieces[BOS_ID]
    config.add_source_eos = True
    config.layer_norm_epsilon = 1e-5  # torch's own
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _specify(model: Transformer) -> tuple[Any, Any]:
    """Encoder and decoder with the model's weights."""
    config = model.config
    settings: dict[str, Any] = {"pre_norm": False, "head_dim": max(config.d_k, config.d_v)}
    encoder: Any = TransformerEncoderSpec(config.num_layers, config.num_heads, **settings)
    decoder: Any = TransformerDecoderSpec(config.num_layers, config.num_heads, **settings)
    if model.embedding.positions is None:
        positions = sinusoids(_POSITIONS, config.d_model)
    else:  # the last learned position is repeated, as in our model
        index = torch.arange(_POSITIONS).clamp_(max=config.max_positions - 1)
        positions = _copy(model.embedding.positions)[index]
    pieces = model.embedding.weight[: config.vocab_size]
    for stack, embeddings in ((encoder, encoder.embeddings[0]), (decoder, decoder.embeddings)):
        embeddings.weight = _copy(pieces)
        stack.position_encodings.encodings = positions
    decoder.projection.weight = _copy(pieces)
    decoder.projection.bias = torch.zeros(config.vocab_size)
    decoder.projection.bias[[PAD_ID, BOS_ID]] = _NEVER
    for layer, target in zip(model.encoder, encoder.layer, strict=True):
        assert isinstance(layer, EncoderLayer)
        _set_attention(target.self_attention, layer.self_attention, layer.self_attention_norm)
        _set_feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_norm)
    for layer, target in zip(model.decoder, decoder.layer, strict=True):
        assert isinstance(layer, DecoderLayer)
        _set_attention(target.self_attention, layer.self_attention, layer.self_attention_norm)
        _set_attention(target.attention, layer.cross_attention, layer.cross_attention_norm)
        _set_feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_norm)
    return encoder, decoder


def _set_attention(target: Any, attention: MultiHeadAttention, add: PostNorm) -> None:
    """Copy the weights, padding queries, keys and values with zeros to one width.

    Zeros change no product, and the scale stays that of the true d_k.
    """
    heads, d_k, d_v = attention.num_heads, attention.d_k, attention.d_v
    width = max(d_k, d_v)
    key, value = _copy(attention.key_value.weight).split([heads * d_k, heads * d_v])
    query = _widen_heads(_copy(attention.query.weight), heads, width)
    key, value = _widen_heads(key, heads, width), _widen_heads(value, heads, width)
    if len(target.linear) == 2:
        target.linear[0].weight = torch.cat([query, key, value])
    else:
        target.linear[0].weight = query
        target.linear[1].weight = torch.cat([key, value])
    output = _copy(attention.output.weight)
    target.linear[-1].weight = _widen_heads(output.T, heads, width).T.contiguous()
    target.queries_scale = d_k**-0.5
    target.layer_norm.gamma, target.layer_norm.beta = _copy(add.norm.weight), _copy(add.norm.bias)


def _widen_heads(weight: Tensor, heads: int, width: int) -> Tensor:
    """``(heads * narrow, columns)`` to ``(heads * width, columns)``, zeros below each head."""
    by_head = weight.unflatten(0, (heads, -1))
    return nn.functional.pad(by_head, (0, 0, 0, width - by_head.size(1))).flatten(0, 1)


def _set_feed_forward(target: Any, feed_forward: FeedForward, add: PostNorm) -> None:
    for spec, linear in (
        (target.linear_0, feed_forward.inner),
        (target.linear_1, feed_forward.outer),
    ):
        spec.weight, spec.bias = _copy(linear.weight), _copy(linear.bias)
    target.layer_norm.gamma, target.layer_norm.beta = _copy(add.norm.weight), _copy(add.norm.bias)


def _copy(weight: Tensor) -> Tensor:
    """A copy in fp32, because CTranslate2 quantizes in place."""
    return weight.detach().to("cpu", torch.float32, copy=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hypothesis:
    """Tokens without the end of sentence, and whether there was one, which counts in the length."""

    tokens: list[int]
    log_p: float
    ends: bool

    @property
    def length(self) -> int:
        return len(self.tokens) + self.ends

    def score(self, alpha: float) -> float:
        return self.log_p / length_penalty(self.length, alpha).item()


class CTranslate2Decoder:
    """Decodes with the weights of ``model`` as :func:`decode_sentences` does.

    It starts a worker with one thread for each of torch's threads, which is faster than many
    threads on one batch.

    Args:
        folder: an export for CTranslate2; if None, a temporary one is made in fp32
    """

    def __init__(
        self,
        model: Transformer,
        vocabulary: Vocabulary,
        config: DecodingConfig,
        *,
        folder: Path | None = None,
    ) -> None:
        self._model, self._config = model, config
        self._pieces = vocabulary.pieces()
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        with tempfile.TemporaryDirectory() as temporary:
            if folder is None:
                write_ctranslate2_model(model, vocabulary, Path(temporary))
            threads = torch.get_num_threads()
            self._translator: Any = ctranslate2.Translator(
                str(folder or temporary), device="cpu", inter_threads=threads, intra_threads=1
            )
            torch.set_num_threads(threads)  # CTranslate2 changes torch's setting

    def decode(self, sources: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
        """Translate sources that end with the end-of-sentence id, the longest first.

        Yields:
            The index of a source and its hypothesis without the end-of-sentence id.
        """
        alpha, extra = self._config.length_penalty, self._config.max_extra_length
        again: dict[int, list[int]] = {}
        for row, found in self._search(sources, self._batches(sources)):
            limit = len(sources[row]) + extra
            if self._config.beam_size == 1:
                yield row, found[0].tokens[:limit]
            elif (best := self._certain_best(found, limit)) is not None:
                yield row, best.tokens
            else:
                again.setdefault(min(limit, max(h.length for h in found)), []).append(row)
        # Up to the known last step, with enough patience that everything is returned.
        repeated = [(rows, steps) for steps, rows in again.items()]
        for row, found in self._search(sources, repeated, patience=2):
            if ended := [h for h in found if h.ends]:
                yield row, max(ended, key=lambda h: h.score(alpha)).tokens
            else:
                yield row, max(found, key=lambda h: h.log_p).tokens
        left = [row for row, source in enumerate(sources) if not self._takes(source)]
        ours = decode_sentences(self._model, [sources[row] for row in left], self._config)
        yield from ((left[index], tokens) for index, tokens in ours)

    def _takes(self, source: Sequence[int]) -> bool:
        """Whether CTranslate2 can: it refuses empty sources and those with too many positions."""
        return 1 < len(source) <= _POSITIONS - self._config.max_extra_length

    def _certain_best(self, found: list[_Hypothesis], limit: int) -> _Hypothesis | None:
        """The best of all finished hypotheses, if it is certainly among those returned.

        Others may have finished. None of them is likelier than the least likely one returned, and
        none is longer than the longest: the search would have ended before it finished.
        """
        longest = max(h.length for h in found)
        if longest > limit or not all(h.ends for h in found):
            return None
        alpha = self._config.length_penalty
        best = max(found, key=lambda h: h.score(alpha))
        bound = min(h.log_p for h in found) / length_penalty(longest, alpha).item()
        return best if best.score(alpha) >= bound else None

    def _search(
        self,
        sources: Sequence[Sequence[int]],
        batches: list[tuple[list[int], int]],
        patience: int = 1,
    ) -> Iterator[tuple[int, list[_Hypothesis]]]:
        """What CTranslate2 finds for each row; each batch has its number of steps."""
        beam = self._config.beam_size
        waiting: list[tuple[int, Any]] = []
        for rows, steps in batches:
            results = self._translator.translate_batch(
                [[self._pieces[token] for token in sources[row][:-1]] for row in rows],
                asynchronous=True,
                beam_size=beam,
                patience=patience,
                num_hypotheses=beam * patience,
                length_penalty=_NO_PENALTY,
                return_end_token=True,
                return_scores=beam > 1,
                max_input_length=0,
                max_decoding_length=steps,
                min_decoding_length=0,
            )
            waiting += zip(rows, results, strict=True)
        for row, result in waiting:
            yield row, self._read(result.result())

    def _read(self, result: Any) -> list[_Hypothesis]:
        scores = result.scores or [0.0] * len(result.hypotheses)
        found: list[_Hypothesis] = []
        for pieces, log_p in zip(result.hypotheses, scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces if piece != self._pieces[EOS_ID]]
            ends = len(tokens) < len(pieces)
            found.append(_Hypothesis(tokens=tokens, log_p=log_p, ends=ends))
        return found

    def _batches(self, sources: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
        """Rows of similar length, the longest first, with the length limit of the longest."""
        rows = [row for row, source in enumerate(sources) if self._takes(source)]
        batches: list[tuple[list[int], int]] = []
        rows.sort(key=lambda row: -len(sources[row]))
        while rows:
            longest = len(sources[rows[0]])
            end = max(1, _TOKENS_PER_BATCH // longest)
            batches.append((rows[:end], longest + self._config.max_extra_length))
            rows = rows[end:]
        return batches
