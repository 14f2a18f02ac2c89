"""What is in use, what was at most, and running out of it."""

from __future__ import annotations

import gc

import pytest

import lucid_gpu
from lucid_gpu import cuda

pytestmark = pytest.mark.usefixtures("gpu")
MB = 1 << 20


@pytest.fixture
def small(gpu):
    """A GPU with little memory left to the pool."""
    gc.collect()
    cuda.empty_cache()
    cuda.set_per_process_memory_fraction(
        (cuda.memory_reserved() + 64 * MB) / cuda.mem_get_info()[1]
    )
    yield
    cuda.set_per_process_memory_fraction(0.0)  # CuPy: no limit
    gc.collect()


def floats(megabytes):
    return lucid_gpu.zeros(megabytes * MB // 4, device="cuda")


def test_the_highest_figure_is_measured_from_a_reset_on():
    gc.collect()
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    assert cuda.max_memory_allocated() == before
    x = floats(8)
    x.array
    y = floats(4)
    y.array
    del x, y
    gc.collect()
    assert cuda.memory_allocated() == before
    assert cuda.max_memory_allocated() == before + 12 * MB
    assert cuda.max_memory_reserved() >= cuda.max_memory_allocated()
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == before + 12 * MB
    assert stats["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.freed"] == 0
    assert "12.00 MiB" in cuda.memory_summary() or before
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated()


def test_running_out_says_what_was_computed_and_the_process_goes_on(small):
    x = floats(16).requires_grad_()
    (x + 0).array
    failures = cuda.memory_stats()["num_ooms"]
    with pytest.raises(cuda.OutOfMemoryError) as caught:
        lucid_gpu.zeros(64, 8 * MB, device="cuda").array
    text = str(caught.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 2.00 GiB for ")
    assert "[64, 8388608]" in text and "is in use by arrays" in text and "empty_cache()" in text
    assert cuda.memory_stats()["num_ooms"] == failures + 1
    y = x * 2
    y.sum().backward()
    assert x.grad.cpu()[5].item() == 2


def test_the_kernel_that_ran_out_is_named(small):
    x = lucid_gpu.zeros(1, 8 * MB, device="cuda")
    x.array
    y = (x.expand(64, 8 * MB) + 1).tanh()
    with pytest.raises(
        cuda.OutOfMemoryError, match=r"the kernel lucid_\w+ over shape \[64, 8388608\]"
    ):
        y.array
    assert not y._expr.program.is_load  # as it was: computed when there is memory
    assert (x + 1).sum().item() == 8 * MB


def test_the_product_that_ran_out_is_named(small):
    a = lucid_gpu.zeros(8192, 4, device="cuda")
    with pytest.raises(cuda.OutOfMemoryError, match=r"matmul.* of float32\[8192, 4\]"):
        a @ a.t()
    assert (a.t() @ a).shape == (4, 4)


def test_what_other_streams_hold_is_waited_for_before_memory_runs_out(small):
    s = cuda.Stream()
    x = floats(40)
    x.array
    s.wait_stream(cuda.current_stream())
    with cuda.stream(s):
        total = (x + 1).sum()
    x.record_stream(s)
    del x
    floats(40).array  # has room only when the memory of x is back
    s.synchronize()
    assert total.item() == 40 * MB / 4
