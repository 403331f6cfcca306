"""The data of a run for a Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as lightning

from transformer.config import Config
from transformer.data.batches import Batch, BatchPlan, FixedBatches, batches_by_length, collate
from transformer.data.prepare import PreparedCorpus, prepare
from transformer.data.store import TokenStore


class PlannedLoader:
    """Yields one epoch of batches at each iteration, the next one each time.

    ``first`` is the number, since the start of training, of the batch to begin with: a resumed
    run goes on in the middle of an epoch exactly where it was.
    """

    def __init__(
        self,
        store: TokenStore,
        plan: BatchPlan,
        *,
        first: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._store, self._plan = store, plan
        self._next = first
        self._rank, self._world_size = rank, world_size

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        end = (self._next // len(self._plan) + 1) * len(self._plan)
        for number in range(self._next, end):
            self._next = number + 1
            yield collate(
                self._store,
                self._plan.batch(number),
                number=number,
                rank=self._rank,
                world_size=self._world_size,
            )


class TranslationDataModule(lightning.LightningDataModule):
    """A corpus as batches of real tokens, prepared at first use and cached after.

    The loaders shard by themselves: a Trainer of one's own on several devices needs nothing
    set for it.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self._corpus: PreparedCorpus | None = None

    @property
    def corpus(self) -> PreparedCorpus:
        """The prepared corpus."""
        if self._corpus is None:
            self._corpus = prepare(self.config)
        return self._corpus

    def prepare_data(self) -> None:
        """Fetch, clean and encode, unless that has been done before."""
        prepare(self.config)

    def train_plan(self) -> BatchPlan:
        """The plan of training."""
        data, training = self.config.data, self.config.training
        return BatchPlan(self.corpus.buckets(), data.tokens_per_batch, training.seed)

    def train_dataloader(self) -> PlannedLoader:
        """Batches from the step on at which the Trainer stands."""
        return PlannedLoader(
            self.corpus.store("train"),
            self.train_plan(),
            first=self._steps_taken(),
            **self._share(),
        )

    def val_dataloader(self) -> FixedBatches:
        """The validation set, in the order of length."""
        store = self.corpus.store("valid")
        batches = batches_by_length(store.lengths, self.config.data.tokens_per_batch)
        return FixedBatches(collate(store, pairs, **self._share()) for pairs in batches)

    def _steps_taken(self) -> int:
        trainer = self.trainer
        return 0 if trainer is None else trainer.global_step * trainer.accumulate_grad_batches

    def _share(self) -> dict[str, Any]:
        trainer = self.trainer
        if trainer is None:
            return {}
        return {"rank": trainer.global_rank, "world_size": trainer.world_size}
