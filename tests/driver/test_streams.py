"""Streams and events of the stand-in: late, in any order that is allowed, and in no other."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pytest

SEEDS = range(1, 25)


@pytest.fixture
def streams() -> list[Any]:
    return [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]


def produced_and_consumed(streams: list[Any], waits: bool) -> float:
    """One stream writes 7 where another adds 1 to it."""
    first, second = streams
    x, y = cupy.zeros(1000), cupy.zeros(1000)
    cupy.cuda.Device().synchronize()
    with first:
        x[...] = 7
        event = first.record()
    with second:
        if waits:
            second.wait_event(event)
        cupy.add(x, 1, out=y)
        return float(cupy.asnumpy(y)[0])


def test_work_with_the_right_waits_gives_the_right_values(driver: Any, streams: list[Any]) -> None:
    for seed in SEEDS:
        with driver.order(seed):
            assert produced_and_consumed(streams, waits=True) == 8


def test_a_missing_wait_is_seen(driver: Any, streams: list[Any]) -> None:
    found = set()
    for seed in SEEDS:
        with driver.order(seed):
            found.add(produced_and_consumed(streams, waits=False))
    assert found == {1, 8}


def test_nothing_runs_before_somebody_waits(driver: Any, streams: list[Any]) -> None:
    target = cupy.cuda.alloc_pinned_memory(8)
    seen = np.frombuffer(target, np.float64, 1)
    x = cupy.zeros(1)
    cupy.cuda.Device().synchronize()
    seen[...] = -1
    with streams[0] as stream:
        x[...] = 5
        x.get(stream=stream, out=seen, blocking=False)
    assert seen[0] == -1
    stream.synchronize()
    assert seen[0] == 5


def test_who_asks_again_and_again_gets_through(driver: Any, streams: list[Any]) -> None:
    with streams[0] as stream:
        for _ in range(5):
            cupy.zeros(10)
        event = stream.record()
    assert not event.done
    for _ in range(20):
        if event.done:
            break
    assert event.done and stream.done


@pytest.mark.parametrize("non_blocking", [False, True])
def test_the_default_stream_waits_for_blocking_ones_only(driver: Any, non_blocking: bool) -> None:
    found = set()
    for seed in SEEDS:
        with driver.order(seed):
            x, y = cupy.zeros(10), cupy.zeros(10)
            cupy.cuda.Device().synchronize()
            with cupy.cuda.Stream(non_blocking=non_blocking):
                x[...] = 3
            with cupy.cuda.Stream.null:
                cupy.add(x, 0, out=y)
            cupy.cuda.Device().synchronize()
            found.add(float(y[0]))
    assert found == ({0, 3} if non_blocking else {3})


def test_a_pageable_copy_reads_its_source_at_once(driver: Any, streams: list[Any]) -> None:
    source = np.full(10, 2.0)
    x = cupy.empty(10)
    x.set(source, streams[0])
    source[...] = 9
    assert x.get(streams[0])[0] == 2


def test_a_pinned_copy_reads_its_source_late(driver: Any, streams: list[Any]) -> None:
    source = np.frombuffer(cupy.cuda.alloc_pinned_memory(80), np.float64, 10)
    source[...] = 2
    x = cupy.empty(10)
    x.set(source, streams[0])
    source[...] = 9
    assert x.get(streams[0])[0] == 9


def test_events_tell_the_time_between_them(driver: Any) -> None:
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    first.record()
    cupy.zeros(10)
    last.record()
    last.synchronize()
    assert cupy.cuda.get_elapsed_time(first, last) >= 0


def test_a_captured_stream_runs_nothing(driver: Any, streams: list[Any]) -> None:
    x = cupy.zeros(4)
    cupy.cuda.Device().synchronize()
    cupy.add(x, 1, out=cupy.empty(4))  # compiled and loaded before
    with streams[0] as stream:
        stream.begin_capture()
        cupy.add(x, 1, out=x)
        graph = stream.end_capture()
        stream.synchronize()
        assert x.get(stream)[0] == 0
        for _ in range(3):
            graph.launch(stream)
        assert x.get(stream)[0] == 3
