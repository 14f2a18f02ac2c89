"""Streams, events, and what is pending where they meet."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import weakref

import pytest

import lucid_gpu
from lucid_gpu import cuda
from lucid_gpu.cuda import pending
from lucid_gpu.devices import cuda_memory
from lucid_gpu.tensor import follow_streams

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(autouse=True)
def _default_stream_after(gpu):
    yield
    cuda.set_stream(cuda.default_stream(0))
    cuda.synchronize()


def ready(n=1000):
    return lucid_gpu.arange(n, dtype=lucid_gpu.float32, device="cuda").requires_grad_(False) + 0


def test_the_current_stream_is_the_blocks():
    s, t = cuda.Stream(), cuda.Stream()
    assert s != t and cuda.current_stream() == cuda.default_stream()
    with cuda.stream(s):
        assert cuda.current_stream() == s
        with cuda.stream(t):
            assert cuda.current_stream() == t
        assert cuda.current_stream() == s
    assert cuda.current_stream() == cuda.default_stream()
    cuda.set_stream(t)
    assert cuda.current_stream() == t and hash(cuda.current_stream()) == hash(t)


def test_a_stream_is_a_block_too():
    s, t = cuda.Stream(), cuda.Stream()
    with s, t:
        assert cuda.current_stream() == t
        with s as same:
            assert cuda.current_stream() == s is same
    assert cuda.current_stream() == cuda.default_stream()


@pytest.mark.parametrize("how", ["block", "stream", "external"])
def test_the_stream_is_the_same_after_a_block_of_cupys(gpu, how):
    import cupy

    s, t = cuda.Stream(), cuda.Stream()
    with s if how == "stream" else cuda.stream(s):
        handed = cupy.cuda.Stream.from_external(s) if how == "external" else t._cupy
        with handed:
            assert cupy.cuda.get_current_stream().ptr == handed.ptr
        assert cuda.current_stream() == s and cupy.cuda.get_current_stream().ptr == s.cuda_stream
        with handed, cuda.stream(s), cuda.stream(cuda.default_stream()), handed:
            assert cuda.current_stream().cuda_stream == handed.ptr
        assert cuda.current_stream() == s
    assert cuda.current_stream() == cuda.default_stream()


def test_a_block_ends_with_an_error():
    with pytest.raises(KeyError), cuda.stream(cuda.Stream()):
        raise KeyError
    assert cuda.current_stream() == cuda.default_stream()


def test_a_lazy_layer_is_made_after_the_first_stream():
    cuda.Stream()
    layer = lucid_gpu.nn.LazyLinear(3, device="cuda")
    assert layer(lucid_gpu.ones(2, 4, device="cuda")).shape == (2, 3)


def test_a_stream_that_waits_sees_what_was_computed():
    s = cuda.Stream()
    x = ready()
    s.wait_stream(cuda.current_stream())
    with cuda.stream(s):
        y = (x * 2).exp() @ lucid_gpu.ones(1000, 1, device="cuda")
    cuda.current_stream().wait_stream(s)
    wanted = (ready().cpu() * 2).exp().sum()
    assert y.isinf().item() == bool(wanted.isinf())


def test_what_is_pending_at_a_switch_is_computed_before_it():
    """Read first on another stream, it would be computed there, and read here unawaited."""
    s = cuda.Stream()
    with cuda.stream(s):
        x = ready()
        h = x + 1
    assert h._expr.program.is_load  # computed on s, where it was written
    cuda.current_stream().wait_stream(s)
    k = h * 2
    event = cuda.current_stream().record_event()
    assert k._expr.program.is_load
    s.wait_event(event)
    with cuda.stream(s):
        both = (h + k).sum()
    s.synchronize()
    assert both.item() == 3 * (999 * 1000 / 2 + 1000)


def test_a_reduction_that_waits_is_computed_before_a_switch():
    s, x = cuda.Stream(), ready()
    with lucid_gpu.fusion.eager(False), lucid_gpu.profiler.record() as log:
        with cuda.stream(s):
            s.wait_stream(cuda.default_stream())
            total = x.sum()
        computed = len(log)
        s.synchronize()
        assert total.item() == 999 * 1000 / 2
    assert computed == len(log) >= 1


def test_an_in_place_write_is_computed_before_a_switch():
    s, x = cuda.Stream(), ready()
    x.sum().item()
    x.mul_(3)
    s.wait_stream(cuda.current_stream())
    assert x._expr.program.is_load
    with cuda.stream(s):
        total = x.sum()
    s.synchronize()
    assert total.item() == 3 * 999 * 1000 / 2


def test_backward_waits_for_the_streams_of_forward():
    s = cuda.Stream()
    w = lucid_gpu.full((20, 20), 2.0, device="cuda", requires_grad=True)
    a, b = ready(400).reshape(20, 20), lucid_gpu.eye(20, device="cuda") * 1
    s.wait_stream(cuda.current_stream())
    with cuda.stream(s):
        x = a @ b  # is there when s gets to it
        y = w * x
    y.backward(lucid_gpu.ones(20, 20, device="cuda"))
    assert lucid_gpu.equal(w.grad.cpu(), a.cpu())


def test_forward_and_backward_fuse_in_a_program_with_streams():
    with cuda.stream(cuda.Stream()):
        ready()
    x, g = lucid_gpu.rand(50, device="cuda", requires_grad=True), ready(50)
    g.array
    x.array
    with lucid_gpu.fusion.eager(False), lucid_gpu.profiler.record() as log:
        y = (x * 2).tanh()
        y.backward(g)
        y.array
        x.grad.array
    assert len(log) == 1


def test_events_ask_and_wait():
    event = cuda.Event()
    assert event.query() and event.cuda_event == 0 and "uninitialized" in repr(event)
    event.synchronize()
    s = cuda.Stream()
    with cuda.stream(s):
        ready()
    event.record(s)
    event.wait()
    event.synchronize()
    assert event.query() and s.query() and event.cuda_event
    assert cuda.Stream.record_event(s).device == s.device


def test_events_keep_time():
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="Both events must be recorded"):
        start.elapsed_time(end)
    start.record()
    y = ready() * 2
    end.record()
    assert y._expr.program.is_load  # it was computed between the two
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(cuda.Event())
    with pytest.raises(ValueError, match="Timing must be disabled"):
        cuda.Event(enable_timing=True, interprocess=True)


def test_memory_waits_for_a_recorded_stream():
    s = cuda.Stream()
    x = ready()
    address = x.array.data.ptr
    s.wait_stream(cuda.current_stream())
    with cuda.stream(s):
        y = x * 2
    x.record_stream(s)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    held = [memory.ptr for _, memory in cuda_memory._held]
    other = ready()  # either the stream has passed, or the memory is another
    assert address not in held or other.array.data.ptr != address or s.query()
    s.synchronize()
    assert not cuda_memory._held
    assert y.cpu()[10].item() == 20


def test_record_stream_wants_a_stream():
    with pytest.raises(TypeError, match="argument 'stream' must be a lucid_gpu.cuda.Stream"):
        ready().record_stream("s")


def test_streams_of_other_libraries():
    s = cuda.Stream()
    same = cuda.ExternalStream(s.cuda_stream, s.device)
    assert same == s and s.__cuda_stream__() == (0, s.cuda_stream)
    with cuda.stream(same):
        assert cuda.current_stream() == s


def test_streams_are_handed_out_again():
    """Memory is kept by a stream's address, so no stream ever ends."""
    made = {cuda.Stream().cuda_stream for _ in range(100)}
    assert 2 <= len(made) <= 32


two = pytest.mark.skipif(cuda.device_count() < 2, reason="there is one GPU")


@two
def test_a_stream_of_another_gpu_takes_its_gpu_along():
    s = cuda.Stream(device=1)
    with cuda.stream(s):
        assert cuda.current_device() == 1 and cuda.current_stream() == s
    assert cuda.current_device() == 0 and cuda.current_stream() == cuda.default_stream(0)
    event = cuda.Event()
    event.record(s)
    with pytest.raises(RuntimeError, match="Event device 1 does not match .* stream's device 0"):
        event.record(cuda.Stream(device=0))


@contextlib.contextmanager
def before_the_first_stream():
    """What is made here is noted nowhere, as in a program that has no streams yet."""
    follow_streams(None)
    try:
        yield
    finally:
        follow_streams(pending._noted)


def orders(monkeypatch):
    """A list that grows whenever all streams are ordered."""
    found = []
    meet = pending._meet
    monkeypatch.setattr(
        pending, "_meet", lambda streams, before: (found.append(before), meet(streams, before))
    )
    return found


def pending_since_before(s):
    x = ready()
    x.array
    with before_the_first_stream():
        h = x + 1
    s.wait_stream(cuda.default_stream())
    assert not h._expr.program.is_load
    return h


def test_what_is_pending_since_before_the_first_stream_is_of_the_default_stream():
    """It is computed on the stream that reads it first, and awaited by those that need not wait."""
    s, t = cuda.Stream(), cuda.Stream()
    h = pending_since_before(s)
    t.wait_stream(cuda.default_stream())
    with cuda.stream(s):
        h.array
    with cuda.stream(t):
        there = (h * 2).cpu()
    assert there[999].item() == 2000
    assert (h * 2).cpu()[999].item() == 2000


@pytest.mark.parametrize("dies", [False, True])
def test_what_shares_memory_is_of_the_same_stream(dies):
    s = cuda.Stream()
    h = pending_since_before(s)
    with cuda.stream(s):
        d = copy.copy(h.detach()).alias()
        if dies:
            del h
        else:
            d = h.detach()
            d.array
    kept = d if dies else h
    assert (kept * 2).cpu()[999].item() == 2000


def test_what_another_thread_left_pending_is_of_its_stream():
    s, x = cuda.Stream(), ready()
    x.array
    found = []
    thread = threading.Thread(target=lambda: found.append(x + 1))
    thread.start()
    thread.join()
    s.wait_stream(cuda.default_stream())
    with cuda.stream(s):
        found[0].array
    assert (found[0] * 2).cpu()[999].item() == 2000


def test_what_is_written_belongs_to_the_stream_of_the_write(monkeypatch):
    """Parameters of a program are mostly older than its streams: steps need not wait for that."""
    s = cuda.Stream()
    with before_the_first_stream():
        weight = lucid_gpu.ones(20, 20, device="cuda").requires_grad_()
        start = ready(400).reshape(20, 20)
        average = ready()
        start.array
        average.array
    s.wait_stream(cuda.default_stream())
    with cuda.stream(s):
        optimizer = lucid_gpu.optim.SGD([weight], lr=0.1, momentum=0.9)
        found = orders(monkeypatch)
        for _ in range(4):
            loss = (weight * start).tanh().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            start.data = start.data * 2
            average.mul_(0.9)
            average.array
    assert found == [True, False] * 4  # around the passes back


def test_memory_of_what_was_computed_elsewhere_waits_for_its_own_stream():
    s = cuda.Stream()
    h = pending_since_before(s)
    with cuda.stream(s):
        h.array
    s.synchronize()
    before = len(cuda_memory._held)
    del h
    gc.collect()
    assert len(cuda_memory._held) == before + 1
