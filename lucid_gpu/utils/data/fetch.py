"""One batch out of a dataset: by numbers, or the next of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lucid_gpu.utils.data.collate import default_collate

__all__ = ["Reading"]


class Reading(NamedTuple):
    """How batches are made of a dataset; it travels to worker processes.

    ``open()`` gives a function that takes the sample numbers of a batch, and raises StopIteration
    at the end of a stream, which takes no numbers.
    """

    dataset: Any
    iterable: bool
    batch_size: int | None  # of a stream; None gives single samples
    batched: bool
    drop_last: bool
    collate_fn: Callable[[Any], Any]

    def open(self) -> Callable[[Any], Any]:
        return self._stream() if self.iterable else self._look_up

    def _look_up(self, indices: Any) -> Any:
        dataset, collate = self.dataset, self.collate_fn
        if not self.batched:
            return collate(dataset[indices])
        if collate is default_collate and hasattr(dataset, "collated"):
            return dataset.collated(indices)
        if getattr(dataset, "__getitems__", None):
            return collate(dataset.__getitems__(indices))
        return collate([dataset[i] for i in indices])

    def _stream(self) -> Callable[[Any], Any]:
        samples = iter(self.dataset)

        def following(_: Any) -> Any:
            if self.batch_size is None:
                return self.collate_fn(next(samples))
            batch = list(itertools.islice(samples, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                raise StopIteration
            return self.collate_fn(batch)

        return following

    def tasks(self, numbers: Iterable[Any]) -> Any:
        """What the function of `open` is called with, one after another."""
        return itertools.repeat(None) if self.iterable else iter(numbers)
