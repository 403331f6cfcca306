"""The data of a run for a Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import lightning.pytorch as lightning

from transformer.config import Config
from transformer.data.batches import Batch, BatchPlan, FixedBatches, batches_by_length, collate
from transformer.data.manifest import Manifest, refuse_changed
from transformer.data.prefetch import made_ahead
from transformer.data.preparation.prepare import prepare
from transformer.data.prepared import PreparedCorpus
from transformer.data.store import TokenStore


class PlannedLoader:
    """Yields one epoch of batches at each iteration, the next one each time, made ahead of it.

    Args:
        first: the number, since the start of training, of the batch to begin with: a resumed run
            goes on in the middle of an epoch exactly where it was
        rank: of this device among ``world_size``
        accumulate: micro-batches into which each device's share of a batch is parted, one after
            the other. Device ``r`` of ``W`` with ``k`` of them yields the shards ``r k`` to
            ``r k + k - 1`` of ``W k``: one device with eight sees what eight with one see
    """

    def __init__(
        self,
        store: TokenStore,
        plan: BatchPlan,
        *,
        first: int = 0,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
    ) -> None:
        self._store, self._plan = store, plan
        self._next = first
        self._own = range(rank * accumulate, (rank + 1) * accumulate)
        self._shards = world_size * accumulate

    def __len__(self) -> int:
        """Micro-batches per epoch."""
        return len(self._plan) * len(self._own)

    def __iter__(self) -> Iterator[Batch]:
        end = (self._next // len(self._plan) + 1) * len(self._plan)
        for batch in made_ahead(self._make, product(range(self._next, end), self._own)):
            # One that is left in its middle is begun anew.
            self._next = batch.number + (batch.shard == self._own[-1])
            yield batch

    def _make(self, which: tuple[int, int]) -> Batch:
        number, shard = which
        pairs = self._plan.batch(number)
        return collate(self._store, pairs, number=number, shard=shard, shards=self._shards)


class TranslationDataModule(lightning.LightningDataModule):
    """A corpus as batches of real tokens, prepared at first use and cached after.

    The loaders shard by themselves: a Trainer of one's own on several devices, or with
    ``accumulate_grad_batches``, needs nothing set for it, and takes the same steps as one without.

    Args:
        config: names the corpus
        expected: the data that a run began with; other data is refused
    """

    def __init__(self, config: Config, expected: Manifest | None = None) -> None:
        super().__init__()
        self.config = config
        self._expected = expected
        self._corpus: PreparedCorpus | None = None

    @property
    def corpus(self) -> PreparedCorpus:
        """The prepared corpus."""
        if self._corpus is None:
            self._corpus = prepare(self.config, expected=self._expected)
        return self._corpus

    def prepare_data(self) -> None:
        """Fetch, clean and encode, unless that has been done before."""
        _ = self.corpus

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: which data it was trained on."""
        return {"digest": self.corpus.manifest.digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse a checkpoint that was trained on other data.

        Raises:
            InputError: if it was.
        """
        if state_dict["digest"] != self.corpus.manifest.digest:
            refuse_changed([self.config.data.corpus.name])

    def train_plan(self) -> BatchPlan:
        """The plan of training."""
        data, training = self.config.data, self.config.training
        return BatchPlan(self.corpus.buckets(), data.tokens_per_batch, training.seed)

    def train_dataloader(self) -> PlannedLoader:
        """Batches from the step on at which the Trainer stands."""
        store, plan, trainer = self.corpus.store("train"), self.train_plan(), self.trainer
        if trainer is None:
            return PlannedLoader(store, plan)
        return PlannedLoader(
            store,
            plan,
            first=trainer.global_step,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            accumulate=trainer.accumulate_grad_batches,
        )

    def val_dataloader(self) -> FixedBatches:
        """The validation set, in the order of length."""
        store = self.corpus.store("valid")
        batches = batches_by_length(store.lengths, self.config.data.tokens_per_batch)
        trainer = self.trainer
        rank, ranks = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        return FixedBatches(collate(store, pairs, shard=rank, shards=ranks) for pairs in batches)
