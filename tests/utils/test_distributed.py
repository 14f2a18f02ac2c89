"""`DistributedSampler`: the ranks' parts together are the samples, as PyTorch cuts them."""

from __future__ import annotations

from typing import Any

import pytest

from lucid_gpu.utils.data import DataLoader, DistributedSampler


def parts(kind: Any, count: int, size: int, drop_last: bool) -> list[list[int]]:
    samplers = [kind(range(count), size, r, False, 0, drop_last) for r in range(size)]
    assert all(len(list(s)) == len(s) for s in samplers)
    return [list(s) for s in samplers]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "size"), [(10, 3), (9, 3), (2, 5), (7, 1)])
def test_parts_are_pytorch_s(count: int, size: int, drop_last: bool) -> None:
    ours = parts(DistributedSampler, count, size, drop_last)
    whole = sorted(i for part in ours for i in part)
    assert len({len(part) for part in ours}) == 1
    assert set(whole) == set(range(count)) or drop_last
    torch = pytest.importorskip("torch")
    if not (drop_last and count < size):  # PyTorch's counts are negative or raise there
        assert ours == parts(torch.utils.data.DistributedSampler, count, size, drop_last)


def test_each_epoch_has_another_order() -> None:
    samplers = [DistributedSampler(range(20), 2, r, seed=3) for r in range(2)]
    first = [list(s) for s in samplers]
    assert first == [list(s) for s in samplers]
    assert sorted(first[0] + first[1]) == list(range(20))
    for s in samplers:
        s.set_epoch(1)
    assert first != [list(s) for s in samplers]
    loader = DataLoader(range(20), batch_size=5, sampler=samplers[0])
    assert [len(batch) for batch in loader] == [5, 5]


@pytest.mark.parametrize("seed", [0, 7, -1, (1 << 31) + 5, (1 << 32) + 7])
@pytest.mark.parametrize("count", [1, 2, 17, 3000])
def test_orders_are_pytorch_s(count: int, seed: int) -> None:
    torch = pytest.importorskip("torch")
    for rank in range(2):
        ours = DistributedSampler(range(count), 2, rank, seed=seed)
        theirs = torch.utils.data.DistributedSampler(range(count), 2, rank, seed=seed)
        for epoch in (0, 1, 5):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(ours) == list(theirs)


def test_a_rank_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"Invalid rank 2, rank should be in the interval \[0, 1"):
        DistributedSampler(range(4), 2, 2)
