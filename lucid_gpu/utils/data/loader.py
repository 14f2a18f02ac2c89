"""Batches of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.utils.data.collate import default_collate, default_convert
from lucid_gpu.utils.data.dataset import IterableDataset
from lucid_gpu.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader"]


class DataLoader:
    """Iterates over a dataset in batches.

    Parameters
    ----------
    dataset : Dataset or IterableDataset
    batch_size : int or None
        None gives single samples.
    shuffle : bool
        A new random order each time.
    sampler, batch_sampler : iterable, optional
        Of sample numbers, or of lists of them.
    num_workers : int
        0; worker processes are not there yet.
    collate_fn : callable, optional
        Makes a batch of a list of samples; `default_collate` by default.
    pin_memory : bool
        Taken for the sake of scripts.
    drop_last : bool
        Leave out a last batch that is smaller.
    generator : Generator, optional
        For the random order.

    Raises
    ------
    ValueError
        For settings that exclude one another.
    NotImplementedError
        For worker processes.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers, self.generator = dataset, num_workers, generator
        self.pin_memory = pin_memory
        self.iterable = isinstance(dataset, IterableDataset)
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified shuffle, sampler and "
                f"batch_sampler options, but got shuffle={shuffle}, sampler={sampler}, "
                f"batch_sampler={batch_sampler}"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None and not self.iterable:
            order = RandomSampler(dataset, generator=generator) if shuffle else None
            sampler = order or SequentialSampler(dataset)
        if batch_size is not None and not self.iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if self.iterable and batch_size is not None:
            BatchSampler((), batch_size, drop_last)  # checks the settings
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        batched = batch_sampler is not None or (self.iterable and batch_size is not None)
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def __iter__(self) -> Iterator[Any]:
        if self.iterable:
            return self._stream()
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        return (self._batch(indices) for indices in self.batch_sampler)

    def _batch(self, indices: list[int]) -> Any:
        if self.collate_fn is default_collate and hasattr(self.dataset, "collated"):
            return self.dataset.collated(indices)
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(indices))
        return self.collate_fn([self.dataset[i] for i in indices])

    def _stream(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        if not self.iterable:
            return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)
        if self.batch_size is None:
            return len(self.dataset)
        return len(BatchSampler(range(len(self.dataset)), self.batch_size, self.drop_last))


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. let num_workers > 0"
            " to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if num_workers == 0 and persistent:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if num_workers:
        raise NotImplementedError(
            f"DataLoader(num_workers={num_workers}): worker processes are not there yet. Use "
            "num_workers=0; a TensorDataset loads a batch with one look-up a tensor."
        )
