"""Loss, top-k, softmax, padded matrix and cache against their plain forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from transformer.config import BOS_ID, PAD_ID
from transformer.kernels import cross_entropy
from transformer.kernels.candidates import best_continuations
from transformer.kernels.key_value_cache import KeyValueCache
from transformer.kernels.lookup import lookup
from transformer.kernels.padded_matrix import PaddedMatrix
from transformer.kernels.softmax import softmax_base2
from transformer.training.loss import smoothed_cross_entropy

TOKENS, D_MODEL, VOCAB = 29, 7, 13
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])


def inputs(tokens: int = TOKENS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    states = torch.randn(tokens, D_MODEL, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCAB, D_MODEL, dtype=dtype, requires_grad=True)
    return states, weight, torch.randint(VOCAB, (tokens,))


def torchs(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(states @ weight.T, targets, label_smoothing=smoothing, reduction="sum")


def gradients(loss: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, of)


@smoothings
@pytest.mark.parametrize(
    ("rows_at_a_time", "tokens"),
    [*((rows, TOKENS) for rows in (0.5, 1, 5, TOKENS - 1, TOKENS, 1_000)), (1_000, 0)],
)
def test_both_sums_and_both_gradients_are_torchs(
    smoothing: float, rows_at_a_time: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without targets too, as on a rank without pairs, which takes the step all the same."""
    monkeypatch.setattr(cross_entropy, "_CPU_ELEMENTS", int(rows_at_a_time * VOCAB))
    states, weight, targets = inputs(tokens)
    smoothed, nll = smoothed_cross_entropy(states, weight, targets, smoothing, VOCAB)
    assert smoothed.requires_grad and not nll.requires_grad
    expected = torchs(states, weight, targets, smoothing)
    torch.testing.assert_close(smoothed, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, torchs(states, weight, targets, 0.0), rtol=1e-12, atol=1e-12)
    # with a factor, as in a mean
    found = gradients(smoothed * 0.3, states, weight)
    torch.testing.assert_close(
        found, gradients(expected * 0.3, states, weight), rtol=1e-11, atol=1e-12
    )


class Compiled:
    """A function as a compiler sees it, run by torch; ``gradient`` is the code of its backward."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.gradient = ""
        backend = aot_autograd(
            fw_compiler=lambda module, _: make_boxed_func(module.forward), bw_compiler=self._keep
        )
        self._call = torch.compile(function, backend=backend, fullgraph=True)

    def _keep(self, module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        self.gradient = module.code
        return make_boxed_func(module.forward)

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's
def test_a_compiled_lookup_sums_its_gradient_in_a_fixed_order() -> None:
    """By torch's own kernel: a compiler would replace it by atomic additions."""
    table, index = torch.randn(11, 5, requires_grad=True), torch.randint(11, (3, 17))
    compiled = Compiled(lookup)
    found, expected = compiled(table, index), F.embedding(index, table)
    assert torch.equal(found, expected)
    weights = torch.randn(3, 17, 5)
    (gradient,) = gradients((found * weights).sum(), table)
    assert torch.equal(gradient, gradients((expected * weights).sum(), table)[0])
    assert "transformer.table_gradient" in compiled.gradient
    assert "index_put" not in compiled.gradient


@smoothings
def test_the_compiled_loss_is_the_plain_one_and_writes_no_second_matrix(smoothing: float) -> None:
    states, weight, targets = inputs()
    padded = torch.cat([weight.detach(), torch.ones(3, D_MODEL, dtype=weight.dtype)])
    padded.requires_grad_()
    compiled = Compiled(smoothed_cross_entropy)
    smoothed, nll = compiled(states, padded, targets, smoothing, VOCAB)
    expected = torchs(states, weight, targets, smoothing)
    torch.testing.assert_close(smoothed, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, torchs(states, weight, targets, 0.0), rtol=1e-12, atol=1e-12)
    found = gradients(smoothed, states, padded)
    wanted = gradients(expected, states, weight)
    torch.testing.assert_close((found[0], found[1][:VOCAB]), wanted, rtol=1e-11, atol=1e-12)
    assert "mm" in compiled.gradient and "scatter" not in compiled.gradient


@smoothings
@pytest.mark.parametrize("filling", [0.0, 7.0])
def test_padding_rows_have_no_effect(smoothing: float, filling: float) -> None:
    states, weight, targets = inputs()
    padded = torch.cat([weight.detach(), torch.full((3, D_MODEL), filling, dtype=weight.dtype)])
    padded.requires_grad_()
    found = smoothed_cross_entropy(states, padded, targets, smoothing, VOCAB)
    expected = smoothed_cross_entropy(states, weight, targets, smoothing, VOCAB)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    states_gradient, gradient = gradients(found[0], states, padded)
    assert not gradient[VOCAB:].any()
    real, wanted = (states_gradient, gradient[:VOCAB]), gradients(expected[0], states, weight)
    torch.testing.assert_close(real, wanted, rtol=1e-12, atol=1e-12)


def test_bf16_stays_near_fp32() -> None:
    states, weight, targets = inputs(tokens=211, dtype=torch.float32)
    expected, expected_nll = smoothed_cross_entropy(states, weight, targets, 0.1, VOCAB)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, nll = smoothed_cross_entropy(states, weight, targets, 0.1, VOCAB)
    assert found.dtype == nll.dtype == torch.float32
    assert found.item() != expected.item(), "the products did not run in bf16"
    assert math.isclose(found.item(), expected.item(), rel_tol=3e-3)
    assert math.isclose(nll.item(), expected_nll.item(), rel_tol=3e-3)
    for one, other in zip(
        gradients(found, states, weight), gradients(expected, states, weight), strict=True
    ):
        assert one.dtype == torch.float32
        assert F.cosine_similarity(one.flatten(), other.flatten(), dim=0).item() > 0.9998
        assert math.isclose(one.norm().item(), other.norm().item(), rel_tol=5e-3)


@pytest.mark.parametrize("size", [1e4, 1e8])
def test_huge_logits_have_a_finite_loss(size: float) -> None:
    states, weight, targets = inputs(dtype=torch.float32)
    smoothed, nll = smoothed_cross_entropy(states * size, weight, targets, 0.1, VOCAB)
    torch.testing.assert_close(smoothed, torchs(states * size, weight, targets, 0.1))
    torch.testing.assert_close(nll, torchs(states * size, weight, targets, 0.0))
    for gradient in gradients(smoothed, states, weight):
        assert gradient.isfinite().all()


# Around multiples of a block, with and without a rest; too small for blocks; a real size.
sizes = pytest.mark.parametrize("vocab_size", [8, 64, 65, 1_023, 1_024, 1_025, 1_087, 8_000])


@sizes
@pytest.mark.parametrize("count", [1, 8])
def test_candidates_are_the_top_k_of_the_vocabulary(vocab_size: int, count: int) -> None:
    logits = torch.randn(3, 5, vocab_size) * 4
    expected = logits.clone()
    expected[..., [PAD_ID, BOS_ID]] = -torch.inf
    expected = expected.log_softmax(-1)
    best, ids = best_continuations(logits.clone(), count)
    values, indices = expected.topk(count)
    assert torch.equal(ids, indices)
    torch.testing.assert_close(best, values)


@pytest.mark.parametrize("vocab_size", [8, 64, 65, 1_087])
def test_the_best_is_found_at_every_position(vocab_size: int) -> None:
    """Each word-piece in turn is best, the one before it second."""
    logits = torch.zeros(vocab_size, vocab_size)
    row = torch.arange(vocab_size)
    logits[row, row] = 9.0
    logits[row[1:], row[1:] - 1] = 7.0
    _, ids = best_continuations(logits, 2)
    for best in range(4, vocab_size):
        assert ids[best].tolist() == [best, best - 1 if best - 1 not in (PAD_ID, BOS_ID) else 1]


def test_candidates_of_huge_logits_are_finite() -> None:
    logits = torch.full((1, 640), 3e38)
    best, _ = best_continuations(logits, 4)
    torch.testing.assert_close(best, torch.full((1, 4), -torch.tensor(638.0).log().item()))


def test_it_is_torchs_softmax_of_the_scores_times_ln_2() -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    masked = scores.masked_fill(torch.rand(5, 7) < 0.5, -torch.inf)
    masked = torch.cat([masked, scores[..., :1]], dim=-1)  # at least one score is finite
    expected = torch.softmax(masked * math.log(2.0), -1)
    found = softmax_base2(masked)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    one, other = (torch.autograd.grad((x * weight).sum(), scores, retain_graph=True)[0]
                  for x in (found, expected))  # fmt: skip
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def matrix(vocab_size: int) -> PaddedMatrix:
    module = PaddedMatrix(vocab_size, D_MODEL)
    torch.nn.init.normal_(module.weight[:vocab_size])
    return module


@pytest.mark.parametrize(("vocab_size", "rows"), [(61, 64), (64, 64), (67, 128)])
def test_logits_and_gradients_are_those_of_the_real_rows(vocab_size: int, rows: int) -> None:
    module, states = matrix(vocab_size), torch.randn(3, D_MODEL)
    assert module.weight.shape == (rows, D_MODEL)
    logits = module.logits(states)
    torch.testing.assert_close(logits, states @ module.weight[:vocab_size].T)
    logits.sum().backward()
    assert module.weight.grad is not None and not module.weight.grad[vocab_size:].any()


def test_only_real_rows_are_saved_and_they_fit_no_other_vocabulary() -> None:
    module, other = matrix(61), matrix(61)
    saved = module.state_dict()
    assert torch.equal(saved["weight"], module.weight[:61])
    with torch.no_grad():
        other.weight.fill_(7.0)
    other.load_state_dict(saved)
    assert torch.equal(other.weight, module.weight)
    with pytest.raises(RuntimeError, match="size mismatch"):
        matrix(59).load_state_dict(saved)


BATCH, HEADS, D_K, D_V = 5, 3, 11, 13


def test_a_growing_cache_returns_all_entries() -> None:
    """Two hypotheses per step, to several times the initial capacity."""
    cache = KeyValueCache()
    keys, values = torch.randn(BATCH, HEADS, 2 * 71, D_K), torch.randn(BATCH, HEADS, 2 * 71, D_V)
    for step in range(71):
        new = slice(2 * step, 2 * step + 2)
        found_keys, found_values = cache.append(keys[:, :, new], values[:, :, new])
        assert torch.equal(found_keys, keys[:, :, : new.stop])
        assert torch.equal(found_values, values[:, :, : new.stop])


def test_a_gpu_reads_each_key_in_one_piece() -> None:
    """Its fused kernels take no other order. Tensors without contents stand for those of a GPU."""
    cache = KeyValueCache()
    new_keys = torch.empty(BATCH, HEADS, 2, D_K, device="meta")
    new_values = torch.empty(BATCH, HEADS, 2, D_V, device="meta")
    keys = values = new_keys
    for _ in range(71):
        keys, values = cache.append(new_keys, new_values)
    assert keys.shape == (BATCH, HEADS, 142, D_K)
    assert keys.stride()[2:] == (D_K, 1) and values.stride()[2:] == (D_V, 1)
