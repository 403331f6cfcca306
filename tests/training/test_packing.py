"""Sentences laid end to end."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ablations.tables.all_you_need import TABLE as ALL_YOU_NEED
from ablations.tables.depths import TABLE as DEPTHS
from ablations.tables.find import find_scale
from ablations.tables.norms import TABLE as NORMS
from ablations.tables.since import TABLE as SINCE
from ablations.tables.table import Row, Table
from ablations.tables.table3 import TABLE as TABLE3
from bench.workload import Workload
from tests.samples import random_sentences, random_targets
from transformer.config import BOS_ID, PAD_ID, override
from transformer.data.batches import Batch, BatchPlan
from transformer.data.buckets import Buckets
from transformer.training.method import make_module
from transformer.training.packing import pack, room, unpack
from transformer.training.whole_step import WholeStep

# They add to the mask, or read it.
BIASED = {"relative", "alibi", "fixed-heads"}
ROWS = [
    (table, row)
    for table in (TABLE3, SINCE, ALL_YOU_NEED, DEPTHS, NORMS)
    for row in table.rows
    if row.name not in BIASED and (table is not DEPTHS or row.name in ("6-1", "2-9"))
]
EACH_ROW = [
    pair if pair[0] is TABLE3 else pytest.param(*pair, marks=pytest.mark.slow) for pair in ROWS
]


def batch_of(sources: list[int], targets: list[int]) -> Batch:
    """Pairs of these lengths; a target begins with one more."""
    return Batch(
        src=random_sentences(sources),
        tgt=random_targets(targets),
        source_tokens=sum(sources),
        target_tokens=sum(targets) - len(targets),
        number=3,
    )


def test_a_packed_batch_has_the_same_sentences() -> None:
    batch = batch_of([5, 1, 3], [2, 7, 4])
    packed = pack(batch, size=24, longest=7)
    assert packed is not None and packed.number == 3
    assert (packed.source_tokens, packed.target_tokens) == (9, 10)
    source, inputs, targets = unpack(packed.tensors, longest=7)
    assert source.ids.shape == inputs.ids.shape == (1, 24) and targets.shape == (24,)
    for side, ids, lengths, padded in (
        (source, source.ids[0], [5, 1, 3], batch.src),
        (inputs, inputs.ids[0], [1, 6, 3], batch.tgt),
        (inputs, targets, [1, 6, 3], batch.tgt[:, 1:]),
    ):
        starts = side.offsets.tolist()
        for row, length in enumerate(lengths):
            part = slice(starts[row], starts[row + 1])
            assert ids[part].tolist() == padded[row, :length].tolist()
            assert side.positions[part].tolist() == list(range(length))
            assert set(side.sentence[part].tolist()) == {row}
    assert targets[10:].eq(PAD_ID).all() and source.ids[0, 9:].eq(PAD_ID).all()
    ends = inputs.offsets.tolist()
    assert all(int(inputs.ids[0, start]) == BOS_ID for start in ends if start < 24)


def test_every_packed_batch_has_the_same_shapes_and_no_filler_is_long() -> None:
    shapes = set[tuple[torch.Size, ...]]()
    for sources, targets in (([3], [90]), ([1] * 40, [2] * 40), ([50, 50], [2, 3])):
        packed = pack(batch_of(sources, targets), size=256, longest=100)
        assert packed is not None
        shapes.add(tuple(tensor.shape for tensor in packed.tensors))
        for side in unpack(packed.tensors, 100)[:2]:
            lengths = side.offsets.diff()
            assert int(lengths.sum()) == 256 and int(lengths[len(sources) :].max()) <= 64
    assert len(shapes) == 1


def test_a_batch_for_which_there_is_no_room_is_not_packed() -> None:
    assert pack(batch_of([8, 9], [3, 4]), size=16, longest=9) is None
    assert pack(batch_of([8, 9], [3, 4]), size=24, longest=8) is None


@pytest.mark.parametrize(("table", "row"), EACH_ROW, ids=lambda each: each.name)
def test_loss_and_gradients_are_those_of_the_padded_batch(table: Table, row: Row) -> None:
    config = table.configure(row, find_scale(table, "quick"))
    config = override(config, dropout=0.0, vocab_size=211, precision="fp32")
    module = make_module(config).double()
    with torch.no_grad():
        for weight in module.parameters():  # as some begin at 0
            weight += torch.randn_like(weight) * 0.01
    batch = batch_of([5, 19, 1, 3], [11, 2, 7, 13])
    packed = pack(batch, size=48, longest=20)
    assert packed is not None
    uncompiled = WholeStep(module.model, config, packs=False)
    sums = module.sums(batch), uncompiled.sums(packed.tensors)
    (expected, gradients), (found, others) = (
        (loss, torch.autograd.grad(loss, list(module.parameters()), materialize_grads=True))
        for loss, _ in sums
    )
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0.0)
    torch.testing.assert_close(sums[1][1], sums[0][1], rtol=1e-13, atol=0.0)
    ours, theirs = (torch.cat([each.flatten() for each in g]) for g in (others, gradients))
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-12


def read_lengths(corpus: str) -> npt.NDArray[np.int64]:
    """The lengths of real pairs: in word-pieces as for benchmarks, else in words."""
    if corpus in ("multi30k", "news"):
        copies = 32 if corpus == "news" else 1
        return Workload(text=corpus, vocab_size=37_000, tokens_per_batch=1, copies=copies).lengths()
    folder = Path(os.environ.get("DATA_FILES", "")) / corpus
    if not (folder / "train.en.xz").is_file():
        pytest.skip(f"there is no {corpus}")
    sides: list[list[int]] = []
    for language in ("en", "de"):
        text = lzma.decompress((folder / f"train.{language}.xz").read_bytes())
        sides.append([len(line.split()) + 1 for line in text.splitlines()])
    lengths = np.array(sides).T
    return lengths[lengths.max(axis=1) <= 256]


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [6_000, 25_000])
@pytest.mark.parametrize("corpus", ["multi30k", "news", "europarl-ende", "tatoeba-ende"])
def test_there_is_room_for_every_batch_of_three_epochs(corpus: str, tokens: int) -> None:
    lengths = read_lengths(corpus)
    plan = BatchPlan(Buckets.of(lengths), tokens, 1)
    sums = [lengths[plan.batch(x)].sum(axis=0).max() for x in range(3 * len(plan))]
    assert max(sums) <= room(tokens)
    assert np.mean(sums[: len(plan) - 1]) >= 0.9 * room(tokens)


def test_room_for_the_papers_batches() -> None:
    assert room(25_000) == 25_264
