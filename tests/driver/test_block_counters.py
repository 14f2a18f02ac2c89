"""Counters by which blocks learn which of them ends last: one set a stream, one a graph."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import lucid_gpu as torch
from lucid_gpu.device import device
from lucid_gpu.launch.launchers import launcher_of
from tests.driver.test_graphs import asked, captured


def counters() -> Any:
    return launcher_of(device("cuda", 0)).counters()


def test_a_sum_over_many_blocks_is_one_launch_that_leaves_zeros(driver: Any) -> None:
    x = torch.randn(9000, 64, device="cuda")
    for axis in (0, None):
        wanted = x.cpu().numpy().sum(axis, dtype=np.float64)
        found: list[Any] = []
        x.sum(axis).cpu()  # the counters are there from now on
        assert asked(driver, lambda: found.append(x.sum(axis).array))["launch"] == 1  # noqa: B023
        np.testing.assert_allclose(cupy.asnumpy(found[0]), wanted, 1e-4, 1e-3)
    assert not counters().any()


def test_streams_have_their_own(driver: Any) -> None:
    found = [counters().data.ptr]
    for _ in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            found.append(counters().data.ptr)
            assert counters().data.ptr == found[-1]
    assert len({*found, counters().data.ptr}) == 3


def test_graphs_have_their_own(driver: Any) -> None:
    x = torch.randn(9000, 64, device="cuda")
    places = {counters().data.ptr}

    def step() -> Any:
        places.add(counters().data.ptr)
        return x.sum(0) * 2

    graphs = [captured(step) for _ in range(2)]
    assert len(places) == 3 and counters().data.ptr in places
    for seed in range(3):
        x.copy_(torch.full((9000, 64), float(seed), device="cuda"))
        torch.cuda.synchronize()
        with driver.order(seed):
            for graph, _ in graphs:
                with torch.cuda.stream(torch.cuda.Stream()):
                    graph.replay()
            torch.cuda.synchronize()
        assert [result[5].item() for _, result in graphs] == [18000.0 * seed] * 2


def test_a_stream_that_somebody_else_captures_gets_new_ones(driver: Any) -> None:
    x = torch.randn(9000, 64, device="cuda")
    wanted = x.sum(0).cpu().numpy()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kept = counters().data.ptr
        stream._cupy.begin_capture()
        assert counters().data.ptr != kept
        y = x.sum(0).array
        graph = stream._cupy.end_capture()
        for _ in range(2):
            graph.launch(stream._cupy)
            np.testing.assert_array_equal(cupy.asnumpy(y), wanted)
        assert counters().data.ptr == kept
