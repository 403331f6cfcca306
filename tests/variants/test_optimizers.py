"""Optimizers against the formulas of their sources in numpy, their states, and learning rates."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import NAdam, Optimizer

from ablations.tables.optimizers import TABLE
from ablations.tables.scale import Scale
from ablations.tables.scales import SCALES
from tests.samples import tiny
from transformer.config import override
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer
from transformer.training.method import make_module
from transformer.training.module import TransformerModule
from transformer.variants.averages import LatestWeights
from transformer.variants.lion import Lion, LionOptimizer
from transformer.variants.nadam import CosineCycles, NAdamW
from transformer.variants.optimizers import JointOptimizer
from transformer.variants.schedule_free import ScheduleFree, ScheduleFreeAdamW
from transformer.variants.soap import Soap, SoapOptimizer

Array = np.ndarray[Any, np.dtype[np.float64]]
Path = Iterator[tuple[Array, Array]]  # after each step: the weights, and those to score
Formula = Callable[[Array, list[float]], Path]
BETA1, BETA2, EPS, DECAY = 0.83, 0.94, 1e-7, 0.3
RATES = [0.011 * step / 3 for step in (1, 2, 3, 3, 3, 2, 1)]
SIZE = 7


def gradient(weights: Array) -> Array:
    """Of a polynomial of degree four, which is curved in all directions."""
    draw = np.random.default_rng(len(weights))
    curve, goal = draw.normal(size=(len(weights),) * 2), draw.normal(size=weights.shape)
    return curve.T @ (curve @ weights - goal) + 0.1 * weights**3


def nadam(weights: Array, rates: list[float]) -> Path:
    """Dozat 2016, with his schedule of momentum, whose weights sum to 1 after each step."""
    mean, square, product = np.zeros_like(weights), np.zeros_like(weights), 1.0
    for t, rate in enumerate(rates, 1):
        g = gradient(weights)
        now, later = (BETA1 * (1 - 0.5 * 0.96 ** (n / 250)) for n in (t, t + 1))
        product *= now
        mean = BETA1 * mean + (1 - BETA1) * g
        square = BETA2 * square + (1 - BETA2) * g**2
        step = later * mean / (1 - product * later) + (1 - now) * g / (1 - product)
        weights = weights * (1 - rate * DECAY)
        weights = weights - rate * step / (np.sqrt(square / (1 - BETA2**t)) + EPS)
        yield weights, weights


def lion(weights: Array, rates: list[float]) -> Path:
    """Algorithm 2 of Chen et al. 2023."""
    momentum = np.zeros_like(weights)
    for rate in rates:
        g = gradient(weights)
        step = np.sign(BETA1 * momentum + (1 - BETA1) * g)
        momentum = BETA2 * momentum + (1 - BETA2) * g
        weights = weights - rate * (step + DECAY * weights)
        yield weights, weights


def schedule_free(weights: Array, rates: list[float]) -> Path:
    """Algorithm 1 of Defazio et al. 2024, with x, y and z."""
    x, z, square, total = weights, weights, np.zeros_like(weights), 0.0
    for t, rate in enumerate(rates, 1):
        y = (1 - BETA1) * z + BETA1 * x
        g = gradient(y)
        square = BETA2 * square + (1 - BETA2) * g**2
        gamma = rate * math.sqrt(1 - BETA2**t)
        z = z - gamma * g / (np.sqrt(square) + EPS) - gamma * DECAY * y
        total += gamma**2
        x = (1 - gamma**2 / total) * x + gamma**2 / total * z
        yield (1 - BETA1) * z + BETA1 * x, x


def soap(weights: Array, rates: list[float], left: bool = True) -> Path:
    """Algorithm 3 of Vyas et al. 2024 and their code; bases are renewed after steps 3 and 6."""
    g = gradient(weights)
    outer = [(1 - BETA2) * g @ g.T, (1 - BETA2) * g.T @ g]
    bases = [np.linalg.eigh(each)[1][:, ::-1] for each in outer]
    if not left:
        bases[0] = np.eye(len(weights))
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    yield weights, weights
    for t, rate in enumerate(rates[1:], 1):
        g = gradient(weights)
        mean = BETA1 * mean + (1 - BETA1) * g
        square = BETA2 * square + (1 - BETA2) * (bases[0].T @ g @ bases[1]) ** 2
        adam = bases[0].T @ mean @ bases[1] / (1 - BETA1**t)
        adam /= np.sqrt(square / (1 - BETA2**t)) + EPS / math.sqrt(1 - BETA2**t)
        weights = (weights - rate * bases[0] @ adam @ bases[1].T) * (1 - rate * DECAY)
        for side, each in enumerate((g @ g.T, g.T @ g)):
            outer[side] = BETA2 * outer[side] + (1 - BETA2) * each
            if t % 3 or (side == 0 and not left):
                continue
            order = np.argsort(-np.diag(bases[side].T @ outer[side] @ bases[side]))
            square = np.take(square, order, axis=side)
            bases[side] = np.linalg.qr(outer[side] @ bases[side][:, order])[0]
        yield weights, weights


def adam(weights: Array, rates: list[float]) -> Path:
    """Kingma and Ba 2015, begun a step later, with decay after each step."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    yield weights, weights
    for t, rate in enumerate(rates[1:], 1):
        g = gradient(weights)
        mean = BETA1 * mean + (1 - BETA1) * g
        square = BETA2 * square + (1 - BETA2) * g**2
        denominator = np.sqrt(square / (1 - BETA2**t)) + EPS / math.sqrt(1 - BETA2**t)
        weights = weights - rate * mean / (1 - BETA1**t) / denominator
        weights = weights * (1 - rate * DECAY)
        yield weights, weights


BETAS = BETA1, BETA2
SOAP = partial(SoapOptimizer, betas=BETAS, eps=EPS, weight_decay=DECAY, every=3, largest=SIZE)
CASES: dict[str, tuple[Callable[[list[Any]], Optimizer], Formula, tuple[int, ...]]] = {
    "nadam": (
        partial(NAdam, betas=BETAS, eps=EPS, weight_decay=DECAY, decoupled_weight_decay=True),
        nadam,
        (SIZE, 5),
    ),
    "lion": (partial(LionOptimizer, betas=BETAS, weight_decay=DECAY), lion, (SIZE, 5)),
    "schedule-free": (
        partial(ScheduleFreeAdamW, betas=BETAS, eps=EPS, weight_decay=DECAY),
        schedule_free,
        (SIZE, 5),
    ),
    "soap": (SOAP, soap, (SIZE, SIZE)),
    "soap-right": (SOAP, partial(soap, left=False), (11, SIZE)),  # of the shorter side alone
    "soap-vector": (SOAP, adam, (SIZE,)),
}
each_case = pytest.mark.parametrize("name", CASES)


def start_of(name: str) -> Array:
    return np.random.default_rng(11).normal(size=CASES[name][2])


def take_steps(optimizer: Optimizer, weight: nn.Parameter, rates: list[float]) -> Iterator[Tensor]:
    """The weights after each step."""
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate
        weight.grad = torch.from_numpy(gradient(weight.detach().numpy())).to(weight.dtype)
        optimizer.step()
        yield weight.detach().clone()


@each_case
def test_an_optimizer_is_its_sources_formulas(name: str) -> None:
    make, formula, _ = CASES[name]
    start = start_of(name)
    weight = nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = make([weight])
    found = take_steps(optimizer, weight, RATES)
    steps = 0
    for ours, (theirs, scored) in zip(found, formula(start, RATES), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6, atol=1e-7)
        if isinstance(optimizer, ScheduleFreeAdamW):
            ours = optimizer.averages()[weight]
        np.testing.assert_allclose(ours.numpy(), scored, rtol=1e-6, atol=1e-7)
        steps += 1
    assert steps == 7 and not np.allclose(weight.detach().numpy(), start, atol=0.01)


@each_case
@pytest.mark.parametrize("is_part", [False, True])
def test_an_optimizer_continues_from_its_saved_state_bit_for_bit(name: str, is_part: bool) -> None:
    """Alone, and as a part of a joint optimizer."""

    def make(weight: nn.Parameter) -> Optimizer:
        alone = CASES[name][0]([weight])
        other = torch.optim.SGD([nn.Parameter(torch.ones(3))])
        return JointOptimizer(other, alone) if is_part else alone

    start = torch.from_numpy(start_of(name)).float()
    whole, weight = nn.Parameter(start), nn.Parameter(start.clone())
    expected = list(take_steps(make(whole), whole, RATES))
    first = make(weight)
    before = list(take_steps(first, weight, RATES[:4]))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    again = nn.Parameter(weight.detach().clone())
    second = make(again)
    second.load_state_dict(torch.load(file, weights_only=True))
    found = [*before, *take_steps(second, again, RATES[4:])]
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_a_step_calls_its_closure_and_leaves_weights_without_a_gradient() -> None:
    used, unused = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(3))
    optimizer = LionOptimizer([used, unused], lr=0.25)

    def closure() -> float:
        loss = used.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 5.0
    assert used.tolist() == [0.75] * 5 and unused.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("kind", "decay"), [(NAdamW, 0.1), (Lion, 1.0), (ScheduleFree, 0.08), (Soap, 0.01)]
)
def test_a_method_takes_its_settings_from_the_configuration(
    kind: type[TransformerModule], decay: float
) -> None:
    """Gains and biases are not decayed, but by SOAP; its embeddings have a basis of one side."""
    config = tiny(WMT14_EN_DE, adam_beta1=BETA1, adam_beta2=BETA2, adam_epsilon=EPS)
    module = kind(config)
    groups = module.optimizer().param_groups
    assert all(group["lr"] == 1.0 and group["betas"] == (BETA1, BETA2) for group in groups)
    assert all(group.get("eps", EPS) == EPS for group in groups)
    weights = [weight for group in groups for weight in group["params"]]
    assert len(weights) == len({*weights}) and {*weights} == {*module.model.parameters()}
    decays = {weight: group["weight_decay"] for group in groups for weight in group["params"]}
    for weight in weights:
        assert decays[weight] == (decay if weight.dim() > 1 or kind is Soap else 0.0)
    if kind is Soap:
        limits = {weight: group["largest"] for group in groups for weight in group["params"]}
        others = {limits[x] for x in weights if x is not module.model.embedding.weight}
        assert others == {10_000}
        assert limits[module.model.embedding.weight] == config.model.d_model


@pytest.mark.parametrize("setting", ["adam_beta1", "learning_rate_factor"])
def test_schedule_free_divides_by_settings_that_must_not_be_0(setting: str) -> None:
    with pytest.raises(InputError, match=f"{setting} is 0.0, but must be above 0"):
        ScheduleFree(tiny(WMT14_EN_DE, **{setting: 0.0}))


def test_lawa_averages_weights_and_keeps_counts() -> None:
    module = LatestWeights(tiny(WMT14_EN_DE), k=2)
    for model, value in zip((*module.ring, module.model), (1, 2, 3), strict=True):
        assert isinstance(model, Transformer)
        model.register_buffer("count", torch.tensor(value))
        model.embedding.weight.data.fill_(float(value))
    module.taken += 2
    scored = module.scored_weights()
    assert scored is not None and scored["count"] == 3
    assert (scored["embedding.weight"] == 1.5).all()


def rates(kind: type[TransformerModule], steps: int, **changes: Any) -> list[float]:
    config = tiny(WMT14_EN_DE, warmup_steps=3, learning_rate_factor=2.0, **changes)
    assert config.model.d_model == 26
    module = kind(config)
    return [module.learning_rate(step) for step in range(1, steps + 1)]


def test_learning_rates_are_those_that_the_sources_advise_times_the_factor() -> None:
    papers = 2 / math.sqrt(26 * 3)  # at the end of the warm-up
    rise = [1 / 3, 2 / 3, 1.0]
    root = [*rise, math.sqrt(3 / 4), math.sqrt(3 / 5)]
    wave = [(1 + math.cos(math.pi * x / 5)) / 2 for x in (1, 2, 3, 4)]
    found = rates(ScheduleFree, 5, schedule="cosine")
    assert found == pytest.approx([0.005 * x for x in (*rise, 1.0, 1.0)])
    assert rates(Lion, 5) == pytest.approx([papers / 10 * x for x in root])
    assert rates(NAdamW, 5) == pytest.approx([papers * x for x in root])
    assert rates(LatestWeights, 5) == pytest.approx([papers * x for x in root])
    found = rates(Soap, 7, schedule="cosine", max_steps=7)
    assert found == pytest.approx([0.006 * x for x in (*rise, *wave)])
    found = rates(CosineCycles, 14, max_steps=14)
    assert found == pytest.approx([papers * x for x in (*rise, *wave, *rise, *wave)])


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: scale.name)
def test_rows_of_the_table_have_the_advised_peak_at_each_scale(scale: Scale) -> None:
    advised = {"schedule-free": 0.0025, "soap": 0.003}
    for row in TABLE.rows:
        config = TABLE.configure(row, scale)
        training, d_model = config.training, config.model.d_model
        base = TABLE.configure(None, scale).training
        papers = base.learning_rate_factor * (d_model * training.warmup_steps) ** -0.5
        expected = advised.get(row.name, papers / 10 if row.name == "lion" else papers)
        module = make_module(override(config, num_layers=1, vocab_size=61, d_ff=17))
        assert module.learning_rate(training.warmup_steps) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (CosineCycles, {"cycles": 0}, "cycles is 0, but must be above 0"),
        (CosineCycles, {"cycles": 3}, "3 cycles in 40 steps leave none after a warm-up of 14"),
        (ScheduleFree, {"peak": 0.0}, "peak is 0.0, but must be above 0"),
        (Soap, {"every": 0}, "every is 0, but must be above 0"),
        (LatestWeights, {"k": 0}, "k is 0, but must be above 0"),
        (LatestWeights, {"every": 0.0}, "every is 0.0, but must be above 0"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    kind: type[TransformerModule], options: dict[str, Any], message: str
) -> None:
    config = tiny(WMT14_EN_DE, max_steps=40, warmup_steps=14)
    with pytest.raises(InputError, match=message):
        kind(config, **options)
