"""lucid_gpu.cuda where there is no GPU: figures are 0, what cannot be done says what is missing."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

import lucid_gpu
from lucid_gpu import cuda
from lucid_gpu.devices import cuda_memory

pytestmark = pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")


def test_questions_are_answered():
    assert cuda.device_count() == 0 and not cuda.is_bf16_supported()
    assert not cuda.is_initialized()
    assert cuda.memory_allocated() == cuda.memory_reserved() == 0
    assert cuda.max_memory_allocated() == cuda.max_memory_reserved() == 0
    assert cuda.memory_stats() == {} and "no GPU" in cuda.memory_summary()
    assert cuda.get_rng_state_all() == []


def test_what_changes_nothing_may_be_called():
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    cuda.reset_accumulated_memory_stats()
    with cuda.stream(None), cuda.device(None), cuda.device(-1):
        cuda.set_stream(None)
    with cuda.device_of(lucid_gpu.zeros(1)):
        pass


@pytest.mark.parametrize(
    "call",
    [
        cuda.Stream,
        cuda.Event,
        cuda.current_stream,
        cuda.default_stream,
        cuda.synchronize,
        cuda.init,
        cuda.mem_get_info,
        cuda.get_device_name,
        cuda.get_device_properties,
        cuda.get_device_capability,
        lambda: cuda.set_device(0),
        lambda: cuda.nvtx.range_push("forward"),
    ],
)
def test_what_cannot_be_done_says_what_is_missing(call):
    with pytest.raises(RuntimeError, match="no cuda device can be used: .*"):
        call()


def test_seeds_are_the_generators():
    cuda.manual_seed(3)
    assert cuda.initial_seed() == 3
    state = cuda.get_rng_state()
    first = lucid_gpu.rand(4)
    cuda.set_rng_state(state)
    assert lucid_gpu.equal(lucid_gpu.rand(4), first)
    cuda.manual_seed_all(3)
    assert lucid_gpu.equal(lucid_gpu.rand(4), first)


def test_no_stream_for_a_tensor_on_the_cpu():
    with pytest.raises(NotImplementedError, match="tensors on a GPU; this one is on cpu"):
        lucid_gpu.zeros(1).record_stream(None)


def test_a_device_that_is_no_gpu_is_refused():
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.device("cpu")


def test_the_errors_are_runtime_errors():
    assert issubclass(cuda.OutOfMemoryError, RuntimeError)
    assert lucid_gpu.OutOfMemoryError is cuda.OutOfMemoryError
    assert lucid_gpu.AcceleratorError is cuda.AcceleratorError


def test_an_array_may_die_while_other_memory_is_released(monkeypatch):
    """The garbage collector runs where it likes: a lock would be waited for by its own thread."""
    monkeypatch.setattr(cuda_memory, "_held", deque())

    class Event:
        @property
        def done(self):
            if len(cuda_memory._held) < 2:
                cuda_memory._hold("second", stream, nullcontext())
            return False

    stream = SimpleNamespace(record=Event)
    cuda_memory._hold("first", stream, nullcontext())
    cuda_memory.release_passed()
    assert sorted({memory for _, memory in cuda_memory._held}) == ["first", "second"]
