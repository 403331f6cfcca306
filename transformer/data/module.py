"""The DataModule: a prepared corpus as loaders for any Trainer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from typing import Any, TypeVar

import lightning.pytorch as lightning

from transformer.config import Config
from transformer.data.batches import Batch, BatchPlan, FixedBatches, collate
from transformer.data.buckets import batches_by_length
from transformer.data.prepare.prepare import prepare
from transformer.data.prepared import Manifest, PreparedCorpus, refuse_changed
from transformer.data.store import EncodedPairs

Item = TypeVar("Item")
Result = TypeVar("Result")

# Several batches, because batches and steps vary in the time they take.
_PREFETCHED = 4


class PlannedLoader:
    """Yields the next epoch of batches at each iteration, prefetched.

    Args:
        first: the batch to start with, counted from the start of training: a resumed run continues
            in the middle of an epoch exactly where it stopped; None repeats the first epoch
        rank: the number of this device among ``world_size``
        accumulate: micro-batches per step and device; one device with eight yields the same shards
            as eight devices with one
    """

    def __init__(
        self,
        store: EncodedPairs,
        plan: BatchPlan,
        *,
        first: int | None = 0,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
    ) -> None:
        self._store, self._plan, self._next, self._same = store, plan, first or 0, first is None
        self._own = range(rank * accumulate, (rank + 1) * accumulate)
        self._shards = world_size * accumulate

    def __len__(self) -> int:
        """Micro-batches per epoch."""
        return len(self._plan) * len(self._own)

    def __iter__(self) -> Iterator[Batch]:
        end = (self._next // len(self._plan) + 1) * len(self._plan)
        for batch in prefetch(self._make, product(range(self._next, end), self._own)):
            # A batch interrupted between its micro-batches starts over.
            if not self._same:
                is_last = batch.shard == self._own[-1]
                self._next = batch.number + 1 if is_last else batch.number
            yield batch

    def _make(self, which: tuple[int, int]) -> Batch:
        number, shard = which
        pairs = self._plan.batch(number)
        return collate(self._store, pairs, number=number, shard=shard, shards=self._shards)


def prefetch(function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result]:
    """``map`` on another thread, some items ahead of the caller.

    An exception of the function is raised when its item is due.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        try:
            for item in items:
                waiting.append(thread.submit(function, item))
                if len(waiting) > _PREFETCHED:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class TranslationDataModule(lightning.LightningDataModule):
    """Batches of a corpus, which is prepared on first use and cached.

    The loaders shard by themselves: any Trainer, on several devices or with
    ``accumulate_grad_batches``, takes the same batches as one on a single device without.

    Args:
        config: names the corpus
        expected: the data that the run started with; other data is refused
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
        """Fetch, clean and encode the corpus, unless it is in the cache."""
        _ = self.corpus

    def state_dict(self) -> dict[str, Any]:
        """The digest of the data, for the checkpoint."""
        return {"digest": self.corpus.manifest.digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse a checkpoint that was trained on other data."""
        if state_dict["digest"] != self.corpus.manifest.digest:
            refuse_changed([self.config.data.corpus.name])

    def train_plan(self) -> BatchPlan:
        """The plan of the training batches."""
        data, training = self.config.data, self.config.training
        return BatchPlan(self.corpus.buckets(), data.tokens_per_batch, training.seed)

    def train_dataloader(self) -> PlannedLoader:
        """Training batches from the Trainer's current step on."""
        store, plan, trainer = self.corpus.store("train"), self.train_plan(), self.trainer
        if trainer is None:
            return PlannedLoader(store, plan)
        overfits = trainer.overfit_batches > 0  # pyright: ignore[reportAttributeAccessIssue]
        return PlannedLoader(
            store,
            plan,
            first=None if overfits else trainer.global_step,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            accumulate=trainer.accumulate_grad_batches,
        )

    def val_dataloader(self) -> FixedBatches:
        """The validation set, ordered by length, without the pairs that are not scored."""
        store = self.corpus.store("valid")
        scored = store.scored()
        batches = batches_by_length(store.lengths[scored], self.config.data.tokens_per_batch)
        trainer = self.trainer
        rank, ranks = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        return FixedBatches(
            collate(store, scored[pairs], shard=rank, shards=ranks) for pairs in batches
        )
