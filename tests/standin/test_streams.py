"""Work on a stream of one's own waits for somebody to wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

FILL = 'extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }'


def filled(cupy: Any, array: Any, value: float) -> None:
    cupy.RawKernel(FILL, "fill")((1,), (array.size,), (array, np.float32(value)))


def test_a_read_that_did_not_wait_sees_old_memory(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.zeros(4, "f")
    with stream:
        filled(cupy, a, 3)
    assert a.get().tolist() == [0] * 4
    stream.synchronize()
    assert a.get().tolist() == [3] * 4


def test_the_null_stream_waits_for_blocking_streams(cupy: Any) -> None:
    stream = cupy.cuda.Stream()
    a = cupy.zeros(4, "f")
    with stream:
        filled(cupy, a, 3)
    assert a.get().tolist() == [3] * 4


def test_events_order_streams(cupy: Any) -> None:
    one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    a = cupy.zeros(4, "f")
    with one:
        filled(cupy, a, 3)
        event = one.record()
        filled(cupy, a, 4)
    with other:
        other.wait_event(event)
        b = a.copy()  # computed in the other stream's name: after the event, before the 4
    other.synchronize()
    assert b.get().tolist() == [3] * 4
    assert event.done and a.get().tolist() == [3] * 4
    cupy.cuda.runtime.deviceSynchronize()
    assert one.done and a.get().tolist() == [4] * 4


def test_arguments_are_read_at_the_launch(cupy: Any) -> None:
    import ctypes

    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.zeros(2, "f")
    kernel = cupy.RawKernel(FILL, "fill").kernel
    pointer, value = ctypes.c_uint64(a.data.ptr), ctypes.c_float(1)
    table = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(value))
    launch = cupy.cuda.driver.launchKernel
    launch(kernel.ptr, 1, 1, 1, 2, 1, 1, 0, stream.ptr, ctypes.addressof(table), 0)
    value.value = 7
    stream.synchronize()
    assert a.get().tolist() == [1, 1]


def test_memory_freed_before_its_reader_ran_is_poison(cupy: Any) -> None:
    copy = 'extern "C" __global__ void copy(const float* x, float* y) { *y = *x; }'
    stream = cupy.cuda.Stream(non_blocking=True)
    a, b = cupy.ones(1, "f"), cupy.zeros(1, "f")
    with stream:
        cupy.RawKernel(copy, "copy")((1,), (1,), (a, b))
    del a
    stream.synchronize()
    assert np.isnan(b.item())


def test_capture_refuses_what_waits_and_a_graph_runs_again(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.zeros(2, "f")
    kernel = cupy.RawKernel(FILL, "fill")
    kernel.kernel
    with stream:
        stream.begin_capture()
        kernel((1,), (2,), (a, np.float32(2)))
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="capturing"):
            a.get()
        graph = stream.end_capture()
    stream.synchronize()
    assert a.get().tolist() == [0, 0]
    graph.launch(stream)
    stream.synchronize()
    assert a.get().tolist() == [2, 2]
