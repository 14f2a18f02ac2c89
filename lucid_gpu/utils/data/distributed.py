"""Each rank's part of the samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import numpy as np

from lucid_gpu import distributed as dist
from lucid_gpu.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


def _shuffled(count: int, seed: int) -> list[int]:
    """The numbers below ``count`` in the order that PyTorch's ``randperm`` gives for a seed.

    Fisher's and Yates's shuffle, by 32 bits of the Mersenne twister a place.
    """
    drawn = np.random.RandomState(seed % (1 << 32)).randint(0, 1 << 32, count, np.uint32)
    order = list(range(count))
    for i, offset in enumerate((drawn[:-1] % np.arange(count, 1, -1, dtype=np.uint32)).tolist()):
        order[i], order[i + offset] = order[i + offset], order[i]
    return order


class DistributedSampler(Sampler[int]):
    """Every ``num_replicas``-th sample number, from ``rank`` on, of one order on all ranks.

    Parameters
    ----------
    dataset : sized
    num_replicas : int, optional
        How many ranks there are, by default in the default group.
    rank : int, optional
    shuffle : bool
        Another order each epoch: call `set_epoch` before it. It is PyTorch's for the same seed.
    seed : int
        The same on all ranks.
    drop_last : bool
        Leave samples away until all ranks have as many; else the first ones come again.

    Raises
    ------
    ValueError
        For a rank that is not there.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.num_replicas: int = dist.get_world_size() if num_replicas is None else num_replicas
        self.rank: int = dist.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {self.num_replicas - 1}]"
            )
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.epoch = 0
        count = len(dataset)
        self.num_samples = (
            count // self.num_replicas if drop_last else math.ceil(count / self.num_replicas)
        )
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            order = _shuffled(count, self.seed + self.epoch)
        if count:
            order = order * math.ceil(self.total_size / count)
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, which makes the order another one."""
        self.epoch = epoch
