"""The experiments of Table 2 have the paper's settings, field by field."""

from __future__ import annotations

import pytest

from experiments.catalog.find import EXPERIMENTS, find_experiment
from transformer.config import TrainingConfig, differences, to_dict
from transformer.evaluation.counts import nominal_flops

# vocabulary, d_model, d_ff, h, dropout, steps, averaged checkpoints
BASE = (512, 2048, 8, 0.1, 100_000, 5)
BIG = (1024, 4096, 16, 0.3, 300_000, 20)
TABLE_2 = {
    "wmt14_en_de_base": ("wmt14_en_de", 37_000, *BASE),
    "wmt14_en_de_big": ("wmt14_en_de", 37_000, *BIG),
    "wmt14_en_fr_base": ("wmt14_en_fr", 32_000, *BASE),
    "wmt14_en_fr_big": ("wmt14_en_fr", 32_000, 1024, 4096, 16, 0.1, 300_000, 20),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_is_trained_as_in_the_paper(name: str):
    config = find_experiment(name).config
    model, training, decoding = config.model, config.training, config.decoding
    assert TABLE_2[name] == (
        config.data.corpus.name,
        model.vocab_size,
        model.d_model,
        model.d_ff,
        model.num_heads,
        model.dropout,
        training.max_steps,
        training.average_checkpoints,
    )
    assert (model.num_layers, model.d_k, model.d_v, model.positions) == (6, 64, 64, "sinusoidal")
    assert config.data.tokens_per_batch == 25_000
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (4, 0.6, 50)
    # Nothing else of training than what the sections name.
    named = {"max_steps", "average_checkpoints", "checkpoint_every_steps"}
    changed = differences(to_dict(TrainingConfig()), to_dict(training))
    assert {line.partition(":")[0] for line in changed} <= named
    assert (training.warmup_steps, training.schedule, training.label_smoothing) == (
        4_000,
        "inverse_sqrt",
        0.1,
    )
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert training.clip_norm is None


@pytest.mark.parametrize(
    ("name", "seconds_per_step", "reported"),
    [("wmt14_en_de_base", 0.4, "3.3e+18"), ("wmt14_en_de_big", 1.0, "2.3e+19")],
)
def test_its_steps_on_eight_p100_cost_the_flops_of_table_2(
    name: str, seconds_per_step: float, reported: str
):
    """With the step times of section 5.2, which it rounds to 12 hours and 3.5 days."""
    training = find_experiment(name).config.training
    assert training.checkpoint_every_steps * seconds_per_step == 600, "every ten minutes"
    seconds = training.max_steps * seconds_per_step
    assert nominal_flops(8 * seconds, 9.5e12) == pytest.approx(float(reported), rel=0.09)


def test_the_small_one_uses_only_news_commentary():
    small = EXPERIMENTS["wmt14_en_de_small"].config
    (text,) = small.data.corpus.train
    assert "training-parallel-nc-v9.tgz" in text.source.location
    assert small.model.d_model < 256
