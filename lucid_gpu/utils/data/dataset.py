"""Collections of samples."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.random import randperm
from lucid_gpu.tensor import Tensor

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by number: a subclass defines ``__getitem__`` and, for most uses, ``__len__``.

    It may also define ``__getitems__(indices)``, which returns a list of samples at once.
    """

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T], Iterable[T]):
    """Samples one after another: a subclass defines ``__iter__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples are the rows of some tensors: ``dataset[i] == (a[i], b[i], ...)``.

    Parameters
    ----------
    *tensors : Tensor, shapes (n, *)
        Of one length, else AssertionError.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError(
                "Size mismatch between tensors: "
                f"their first dimensions are {[t.shape[0] for t in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def collated(self, indices: Sequence[int]) -> list[Tensor]:
        """`default_collate` of these samples, shapes (len(indices), *), by one look-up a tensor."""
        rows = tensor(indices)
        return [t[rows.to(t.device)] for t in self.tensors]


class Subset(Dataset[T]):
    """Some samples of a dataset.

    Parameters
    ----------
    dataset : Dataset
    indices : sequence of int
    """

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        if hasattr(dataset, "collated"):
            self.collated = self._collated

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)

    def _collated(self, indices: Sequence[int]) -> Any:
        return self.dataset.collated([self.indices[i] for i in indices])  # type: ignore[attr-defined]


class ConcatDataset(Dataset[T]):
    """Datasets one after another.

    Parameters
    ----------
    datasets : iterable of Dataset
        At least one, and none an `IterableDataset`, else AssertionError.
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Return where each dataset of a `sequence` ends in all of them."""
        return list(itertools.accumulate(_size(d) for d in sequence))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class StackDataset(Dataset[T]):
    """Samples of several datasets side by side: tuples, or dicts where they are given by name.

    Parameters
    ----------
    *args, **kwargs : Dataset
        Of one length; either positional or by name.

    Raises
    ------
    ValueError
        For both kinds, for none, and for datasets of different lengths.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        self.datasets: Any = args or kwargs
        if not self.datasets:
            raise ValueError("At least one dataset should be passed")
        sizes = {_size(d) for d in self._each()}
        if len(sizes) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length = sizes.pop()

    def _each(self) -> list[Any]:
        return list(self.datasets.values() if self._named else self.datasets)

    @property
    def _named(self) -> bool:
        return isinstance(self.datasets, dict)

    def _sample(self, values: Sequence[Any]) -> Any:
        return dict(zip(self.datasets, values)) if self._named else tuple(values)

    def __getitem__(self, index: Any) -> Any:
        return self._sample([d[index] for d in self._each()])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        columns = [_items(d, indices) for d in self._each()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    "Nested dataset's output size mismatch. "
                    f"Expected {len(indices)}, got {len(column)}"
                )
        return [self._sample(values) for values in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class ChainDataset(IterableDataset[T]):
    """Iterable datasets one after another.

    Parameters
    ----------
    datasets : iterable of IterableDataset
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._checked())

    def __len__(self) -> int:
        return sum(map(_size, self._checked()))


def _size(dataset: Any) -> int:
    return len(dataset)


def _items(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Samples by number, at once where the dataset can."""
    together = getattr(dataset, "__getitems__", None)
    samples: list[Any] = together(indices) if together else [dataset[i] for i in indices]
    return samples


def random_split(
    dataset: Dataset[Any], lengths: Sequence[int | float], generator: Any = None
) -> list[Subset]:
    """Split a dataset into parts at random.

    Parameters
    ----------
    dataset : Dataset
    lengths : sequence of int or of float
        Sizes that add up to the dataset's, or fractions that add up to 1; what rounding leaves is
        dealt out to the first parts.
    generator : Generator, optional

    Returns
    -------
    list of Subset

    Raises
    ------
    ValueError
        If the lengths do not add up.
    """
    total = _size(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        sizes = _from_fractions(lengths, total)
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    for i, size in enumerate(sizes):
        if size == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                stacklevel=2,
            )
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes)]


def _from_fractions(fractions: Sequence[float], total: int) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    sizes = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(sizes)):
        sizes[i % len(sizes)] += 1
    return sizes
