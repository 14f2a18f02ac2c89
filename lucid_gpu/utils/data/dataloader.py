"""Batches of a dataset."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

from lucid_gpu.utils.data.collate import default_collate, default_convert
from lucid_gpu.utils.data.dataset import Dataset, IterableDataset
from lucid_gpu.utils.data.fetch import Reading
from lucid_gpu.utils.data.pinning import pinner
from lucid_gpu.utils.data.processes import Workers
from lucid_gpu.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

__all__ = ["DataLoader"]

T = TypeVar("T", covariant=True)
_worker_init_fn_t = Callable[[int], None]  # PyTorch's names, which annotations use
_collate_fn_t = Callable[[list[Any]], Any]
_FIXED = {
    "batch_size",
    "batch_sampler",
    "dataset",
    "drop_last",
    "persistent_workers",
    "sampler",
}

# Attributes of other loaders that mean what ours do.
_SHARED = (
    "dataset",
    "collate_fn",
    "drop_last",
    "generator",
    "num_workers",
    "timeout",
    "worker_init_fn",
    "pin_memory",
    "in_order",
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
)


class DataLoader(Generic[T]):
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
        Processes that read batches; 0 reads them in this one.
    collate_fn : callable, optional
        Makes a batch of a list of samples; `default_collate` by default.
    pin_memory : bool
        Copy batches into page-locked memory, from where ``.to("cuda", non_blocking=True)`` does not
        wait. Without a GPU a warning says that it does nothing.
    drop_last : bool
        Leave out a last batch that is smaller.
    timeout : float
        Seconds to wait for a worker's batch; 0 waits for ever.
    worker_init_fn : callable, optional
        Called in each worker with its number, after seeding.
    multiprocessing_context : str or context, optional
        How processes are started: ``"fork"``, ``"spawn"``, ``"forkserver"``. With the last two, and
        by default from Python 3.14 on, dataset and functions must be picklable, and the
        script needs its ``if __name__ == "__main__":``.
    generator : Generator, optional
        For the random order and the seeds of workers.
    prefetch_factor : int, optional
        Batches each worker reads ahead; 2 by default.
    persistent_workers : bool
        Keep the processes from one pass to the next.
    pin_memory_device : str
        Accepted for compatibility: page-locked memory serves every GPU.
    in_order : bool
        Batches in the order of the sampler; False gives them as workers finish.

    Raises
    ------
    ValueError, TypeError
        For settings that exclude each other or cannot be.
    RuntimeError
        While iterating: a worker died, or the timeout passed. AssertionError, for a timeout without
        workers. What a worker raises is raised here,
        of its type and with its traceback in the message.

    Notes
    -----
    Worker ``i`` seeds `random`, NumPy's and our generator from the pass's seed, a draw of
    ``generator``, and ``i``. Large arrays come back in memory that both processes see.
    """

    def __init__(
        self,
        dataset: Dataset[T] | Any,
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
        _check_context(multiprocessing_context, num_workers)
        self.dataset = cast(Any, dataset)
        self.num_workers, self.generator = num_workers, generator
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        self.persistent_workers = persistent_workers
        iterable = isinstance(dataset, IterableDataset)
        _check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        if sampler is None and not iterable:
            order = RandomSampler(self.dataset, generator=generator) if shuffle else None
            sampler = order or SequentialSampler(self.dataset)
        if batch_size is not None and not iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if iterable and batch_size is not None:
            BatchSampler((), batch_size, drop_last)  # checks the settings
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        batched = batch_sampler is not None or (iterable and batch_size is not None)
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._iterable, self._auto_collation = iterable, batched
        self._length: int | None = None  # of an IterableDataset, as it was asked for
        self._kept: _MultiProcessingDataLoaderIter | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_kept" in self.__dict__:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.num_workers:
            if self.timeout:
                raise AssertionError(
                    "_SingleProcessDataLoaderIter requires timeout == 0: it is for batches of "
                    f"workers; pass num_workers=1, or leave timeout={self.timeout} away"
                )
            return _SingleProcessDataLoaderIter(self)
        if not self.persistent_workers:
            return _MultiProcessingDataLoaderIter(self)
        if self._kept is None:
            self._kept = _MultiProcessingDataLoaderIter(self)
        else:
            self._kept._yielded = 0
            self._kept.begin(self)
        return self._kept

    def _reading(self) -> Reading:
        return Reading(
            self.dataset,
            self._iterable,
            self.batch_size,
            self._auto_collation,
            self.drop_last,
            self.collate_fn,
        )

    def _numbers(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._numbers())
        self._length = length = len(self.dataset)
        if self.batch_size is None:
            return length
        return len(BatchSampler(range(length), self.batch_size, self.drop_last))


class _DatasetKind:
    """What the loaders of packages say of their datasets."""

    Map, Iterable = 0, 1


def _taken(loader: Any) -> DataLoader[Any]:
    """The loader that another object describes, by PyTorch's names of its private attributes."""
    ours = DataLoader.__new__(DataLoader)
    iterable = loader._dataset_kind == _DatasetKind.Iterable
    ours.__dict__.update({name: getattr(loader, name) for name in _SHARED})
    ours.__dict__.update(
        batch_size=loader.batch_size if iterable and loader._auto_collation else None,
        sampler=loader._index_sampler,
        batch_sampler=None,
        _iterable=iterable,
        _auto_collation=loader._auto_collation,
        _length=loader._IterableDataset_len_called,
    )
    return ours


class _BaseDataLoaderIter:
    """One pass over the batches of a loader, or of an object with a loader's attributes."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        loader = loader if isinstance(loader, DataLoader) else _taken(loader)
        self.base_seed = draw_seed(loader.generator)
        self.pin = pinner() if loader.pin_memory else None
        self._loader, self._yielded = loader, 0
        self.begin(loader)

    def begin(self, loader: DataLoader[Any]) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        """The next batch; StopIteration after the last."""
        raise NotImplementedError

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        batch = self.read()
        self._yielded += 1
        length = self._loader._length
        if length is not None and self._yielded > length:
            _warn_of_length(self._loader, self._yielded)
        return batch if self.pin is None else self.pin(batch)

    def __len__(self) -> int:
        return len(self._loader._numbers())  # TypeError for streams: `list` asks


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches read in this process."""

    def begin(self, loader: DataLoader[Any]) -> None:
        reading = loader._reading()
        self.tasks, self.fetch = reading.tasks(loader._numbers()), reading.open()

    def read(self) -> Any:
        return self.fetch(next(self.tasks))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches read by worker processes."""

    workers: Workers | None = None

    def begin(self, loader: DataLoader[Any]) -> None:
        reading = loader._reading()
        if self.workers is None or not self.workers.close.alive:
            self.workers = Workers(
                reading,
                loader.num_workers,
                loader.prefetch_factor or 1,
                self.base_seed,
                loader.timeout,
                loader.in_order,
                loader.worker_init_fn,
                loader.multiprocessing_context,
            )
        self.persistent = loader.persistent_workers
        self.workers.begin(reading.tasks(loader._numbers()))

    def read(self) -> Any:
        assert self.workers is not None
        try:
            return self.workers.next()
        except StopIteration:
            if not self.persistent:
                self.workers.close()
            raise


def _warn_of_length(loader: DataLoader[Any], count: int) -> None:
    copies = (
        "For multiprocessing data-loading, this could be caused by not properly configuring the "
        "IterableDataset replica at each worker: get_worker_info() says which part is a worker's."
    )
    warnings.warn(
        f"Length of IterableDataset {loader.dataset} was reported to be {loader._length} (when "
        f"accessing len(dataloader)), but {count} samples have been fetched. "
        + (copies if loader.num_workers else ""),
        stacklevel=3,
    )


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
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if num_workers == 0 and persistent:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if num_workers > (cpus := multiprocessing.cpu_count()):
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested "
            f"max number of worker in current system is {cpus}, which is smaller than what this "
            "DataLoader is going to create. Please be aware that excessive worker creation might "
            "get DataLoader running slow or even freeze, lower the worker number to avoid "
            "potential slowness/freeze if necessary.",
            stacklevel=3,
        )


def _check_context(context: Any, num_workers: int) -> None:
    if context is None:
        return
    if not num_workers:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(context, str):
        valid = multiprocessing.get_all_start_methods()
        if context not in valid:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{valid!r}, but got multiprocessing_context={context!r}"
            )
    elif not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={context}"
        )


def _check_order(
    iterable: bool,
    batch_size: int | None,
    shuffle: Any,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    for option, value in (
        ("shuffle", shuffle or None),
        ("sampler", sampler),
        ("batch_sampler", batch_sampler),
    ):
        if iterable and value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {option} option, but got "
                f"{option}={value}"
            )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )
