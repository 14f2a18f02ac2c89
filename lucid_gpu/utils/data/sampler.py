"""In which order samples are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from lucid_gpu.dtypes import float64
from lucid_gpu.ops.creation import as_tensor
from lucid_gpu.ops.generator import Generator
from lucid_gpu.ops.multinomial import multinomial
from lucid_gpu.ops.random import randint, randperm

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T = TypeVar("T", covariant=True)
_CHUNK = 1024  # random numbers drawn at a time, so that a huge `num_samples` costs nothing


def draw_seed(generator: Any = None) -> int:
    """A number below 2**63 - 1, one draw of a generator (the default one)."""
    return int(randint(0, (1 << 63) - 1, (), generator=generator).item())


def _own(generator: Any) -> Any:
    """A generator for one pass over the samples: what a program draws meanwhile changes nothing."""
    return Generator().manual_seed(draw_seed()) if generator is None else generator


def _check_count(num_samples: Any) -> None:
    if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
        raise ValueError(
            f"num_samples should be a positive integer value, but got num_samples={num_samples}"
        )


def _check_replacement(replacement: Any) -> None:
    if not isinstance(replacement, bool):
        raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")


class Sampler(Generic[T]):
    """An iterable of sample numbers: a subclass defines ``__iter__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    Parameters
    ----------
    data_source : sized
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Sample numbers at random.

    Parameters
    ----------
    data_source : sized
    replacement : bool
        Draw independently, so that numbers may repeat.
    num_samples : int, optional
        The size of the dataset by default.
    generator : Generator, optional

    Raises
    ------
    TypeError, ValueError
        For a ``replacement`` that is not a bool, and a number that is not positive.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        _check_replacement(replacement)
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _check_count(self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many positions one walk gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        draw, size = (_independent if self.replacement else randperm), len(self.data_source)
        yield from itertools.islice(_forever(draw, size, _own(self.generator)), self.num_samples)

    def __len__(self) -> int:
        return self.num_samples


def _forever(draw: Any, size: int, generator: Any) -> Iterator[int]:
    while size:
        yield from draw(size, generator=generator).tolist()


def _independent(size: int, generator: Any) -> Any:
    return randint(0, size, (_CHUNK,), generator=generator)


class SubsetRandomSampler(Sampler[int]):
    """Given sample numbers in random order.

    Parameters
    ----------
    indices : sequence of int
    generator : Generator, optional
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Sample numbers, each as often as its weight says.

    Parameters
    ----------
    weights : sequence of float
        They need not add up to 1.
    num_samples : int
    replacement : bool
        Without it no number is drawn twice.
    generator : Generator, optional

    Raises
    ------
    ValueError
        For weights that are not row of numbers, and other invalid settings.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        _check_count(num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        if not self.replacement:
            count = self.num_samples
            yield from multinomial(self.weights, count, generator=self.generator).tolist()
            return
        chunk, generator = max(_CHUNK, len(self.weights)), _own(self.generator)
        for start in range(0, self.num_samples, chunk):
            count = min(chunk, self.num_samples - start)
            yield from multinomial(self.weights, count, True, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of sample numbers.

    Parameters
    ----------
    sampler : iterable of int
    batch_size : int
        Positive, else ValueError, as for a ``drop_last`` that is not a bool.
    drop_last : bool
        Leave out a last list that is shorter.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)
