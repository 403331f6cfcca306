"""Find models whose outputs are the same at all positions.

For each run it prints the standard deviation between positions of the encoder's and the decoder's
output, and the validation perplexity with the right sources and with those of other sentences. The
two perplexities are the same for a model that ignores its sources:
``python -m bench.collapse runs/depths-small/*/seed-1``
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench import end_in_one_line
from experiments.evaluate.trained import TrainedModel, load_trained, text_of_split
from experiments.evaluate.translator import Text
from transformer.config import PAD_ID
from transformer.data.batches import collate
from transformer.evaluation.perplexity import scored_pairs
from transformer.model.encoder_decoder import evaluating, padding_mask

_SENTENCES = 64


@dataclass(frozen=True, slots=True)
class Collapse:
    """How much a model's outputs differ between positions, and what its sources are worth.

    ``encoder`` and ``decoder`` are standard deviations; ``perplexity`` is per word-piece.
    """

    encoder: float
    decoder: float
    perplexity: float
    with_other_sources: float


def measure_collapse(trained: TrainedModel, text: Text) -> Collapse:
    """Measure one model; the deviations are those of the first 64 sentences."""
    encoder, decoder = _deviations(trained, text)
    others = Text([*text.sources[1:], *text.sources[:1]], text.references)
    return Collapse(
        encoder=encoder,
        decoder=decoder,
        perplexity=trained.perplexity(text).per_token,
        with_other_sources=trained.perplexity(others).per_token,
    )


@torch.inference_mode()
def _deviations(trained: TrainedModel, text: Text) -> tuple[float, float]:
    model = trained.model
    pairs, scored = scored_pairs(
        trained.vocabulary, text.sources[:_SENTENCES], text.references[:_SENTENCES]
    )
    batch = collate(pairs, scored).to(model.embedding.weight.device)
    tgt = batch.tgt[:, :-1]
    with evaluating(model):
        memory = model.encode(batch.src, padding_mask(batch.src))
        states = model.states(batch.src, tgt)
    return _between_positions(memory, batch.src), _between_positions(states, tgt)


def _between_positions(outputs: Tensor, tokens: Tensor) -> float:
    """Root mean square over sentences and features of the deviation between real positions."""
    variances = [
        of_sentence[real].var(dim=0, correction=0)
        for of_sentence, real in zip(outputs.double(), tokens.ne(PAD_ID), strict=True)
    ]
    return torch.stack(variances).mean().sqrt().item()


def main() -> None:
    """Measure the last checkpoints of the runs that the command names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="directories with checkpoints")
    print("   encoder   decoder  perplexity  with other sources")
    for directory in parser.parse_args().runs:
        trained = load_trained(directory, average=1)
        found = measure_collapse(trained, text_of_split(trained.experiment, "valid"))
        print(
            f"{found.encoder:10.2g}{found.decoder:10.2g}{found.perplexity:12,.2f}"
            f"{found.with_other_sources:20,.2f}  {directory}"
        )


if __name__ == "__main__":
    end_in_one_line(main)
