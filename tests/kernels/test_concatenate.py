"""Arrays joined along a dimension: CUDA C on the host against NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.kernels import concatenate as family
from lucid_gpu.launch import rows
from lucid_gpu.launch.host import HostLauncher
from tests.fusion.plans import needs_compiler, random

pytestmark = needs_compiler


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The sources of kernels launched on the host."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    found: list[str] = []
    start = HostLauncher.start

    def noted(self: HostLauncher, function: Any, *arguments: Any) -> None:
        found.append(function.source)
        start(self, function, *arguments)

    monkeypatch.setattr(HostLauncher, "start", noted)
    yield found


def joined(arrays: Sequence[Any], dim: int, order: Any = None) -> Any:
    found = family.concatenate.cuda_c(arrays, dim, order, CPU)
    wanted = np.concatenate(arrays, dim)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()
    return found


@pytest.mark.parametrize("d", dt.ALL, ids=str)
def test_all_types_along_every_dimension(d: dt.dtype, launches: list[str]) -> None:
    for dim, sizes in itertools.product((0, 1, 2), ((3, 4, 5), (8, 16, 8), (1, 0, 2))):
        shapes = [(*(2, 4, 8)[:dim], n, *(2, 4, 8)[dim + 1 :]) for n in sizes]
        joined([random(s, d, seed=i) for i, s in enumerate(shapes)], dim)
    assert len(launches) == 9


@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_words_are_as_wide_as_all_parts_are_aligned(shift: int, launches: list[str]) -> None:
    parts = [random((64 + shift,), dt.float32, seed=i)[shift:] for i in range(3)]
    joined(parts, 0)
    joined([p.reshape(4, 16) for p in parts], 1)
    width = {0: 16, 1: 4, 2: 8, 4: 16}[shift]
    assert all(f"concatenate<{width}, " in source for source in launches), launches


def test_many_parts(launches: list[str]) -> None:
    parts = [random((3, i % 7), dt.float32, seed=i) for i in range(500)]
    joined(parts, 1)
    assert len(launches) == -(-sum(p.size > 0 for p in parts) // family.TABLES[4].rows)
    launches.clear()
    joined([p.reshape(-1) for p in parts], 0)
    assert len(launches) == -(-sum(p.size > 0 for p in parts) // family.TABLES[2].rows)


VIEWS = {
    "columns": lambda x: x[:, 3:9],
    "every other row": lambda x: x[::2],
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column for all": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "transposed": lambda x: x[:24].T,
    "backwards": lambda x: x[::-1],
    "every other column": lambda x: x[:, ::2],
}


@pytest.mark.parametrize("view", VIEWS)
def test_parts_lie_as_they_like(view: str, launches: list[str]) -> None:
    x, y = (VIEWS[view](random((40, 24), dt.float32, seed=i)) for i in (0, 1))
    for dim in (0, 1):
        joined([x, y, x.copy()], dim)
        joined([np.stack([x, y]), np.stack([y, x])], dim + 1)
    assert len(launches) == 3  # parts one after the other are written to their places


def test_runs_and_views_of_runs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "row_major", None)
    x = random((6, 40, 24), dt.float32)
    for view, dim in ((x[:, :7], 1), (x[:, :, 3:9], 2), (x[1:3], 0), (x[:, 5], 1)):
        joined([view, view], dim)
    joined([np.broadcast_to(x[0, 0], (40, 24)), x[1]], 1)


def test_images_whose_channels_lie_last(launches: list[str]) -> None:
    x, y = (random((2, 5, 6, n), dt.float32).transpose(0, 3, 1, 2) for n in (3, 4))
    found = joined([x, y], 1, (0, 2, 3, 1))
    assert found.transpose(0, 2, 3, 1).flags.c_contiguous
    assert len(launches) == 1


def test_parts_longer_than_an_int_counts(
    launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for longest in (1000, 7):
        for module in (family, rows):
            monkeypatch.setattr(module, "LONGEST", longest)
        parts = [random((40, n), dt.float32, seed=n) for n in (24, 8, 100)]
        joined(parts, 1)
        joined([p.reshape(-1) for p in parts], 0)


@pytest.mark.parametrize("order", ["reversed", "5"])
def test_blocks_may_come_in_any_order(
    order: str, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_HOST_ORDER", order)
    joined([random((40, n), dt.float32, seed=n) for n in (24, 7, 3000)], 1)
    joined([random((4000, 1), dt.float32, seed=n) for n in range(3)], 1)


def test_one_kernel_joins_what_tensors_hold(launches: list[str]) -> None:
    """Of `cat`, `stack` and their gradients; expanded and permuted parts among them."""
    x, y = (lucid_gpu.tensor(random((8, 12), dt.float32, seed=i)) for i in (0, 1))
    found = lucid_gpu.cat([x, y[:1].expand(8, 12), x[:, 2:6]], 1)
    wanted = np.concatenate(
        [x.numpy(), np.broadcast_to(y.numpy()[:1], (8, 12)), x.numpy()[:, 2:6]], 1
    )
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert len(launches) == 1
    launches.clear()
    for dim in (0, 1, 2, -1):
        found = lucid_gpu.stack([x, y], dim)
        np.testing.assert_array_equal(found.numpy(), np.stack([x.numpy(), y.numpy()], dim))
    assert len(launches) == 4
    a, b = (t.clone().requires_grad_() for t in (x, y.T))
    lucid_gpu.cat([a, b.T]).mul(lucid_gpu.arange(16.0)[:, None]).sum().backward()
    np.testing.assert_array_equal(b.grad.numpy(), np.arange(8.0, 16)[None].repeat(12, 0))


def test_nothing_to_join_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a non-empty list of Tensors"):
        lucid_gpu.cat([])
    assert lucid_gpu.cat([lucid_gpu.ones(0), lucid_gpu.ones(0)]).shape == (0,)
