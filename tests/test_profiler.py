"""The profiler records what ran."""

from __future__ import annotations

import lucid_gpu
from lucid_gpu import profiler


def test_every_kernel_is_recorded_in_order(device: str) -> None:
    x = lucid_gpu.rand(4, 5, device=device)
    with profiler.record() as log:
        (x + 1).array
        (x * 2).sum(0).array
    first, second = log.kernels
    assert (first.ops, second.ops) == (("add",), ("mul",))
    assert first.shape == second.shape == (4, 5)
    assert first.device == x.device
    assert (first.bytes_read, first.bytes_written) == (80, 80)
    assert second.bytes_written == 20
    assert (log.bytes_read, log.bytes_written) == (160, 100)
    assert len(log) == 2


def test_nothing_is_recorded_outside_the_block(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    with profiler.record() as log:
        pending = x + 1
    pending.array
    assert log.kernels == []


def test_blocks_may_be_nested(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    with profiler.record() as outer:
        (x + 1).array
        with profiler.record() as inner:
            (x + 2).array
    assert (len(outer), len(inner)) == (2, 1)


def test_a_block_ends_with_an_error(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    try:
        with profiler.record() as log:
            raise KeyError
    except KeyError:
        pass
    (x + 1).array
    assert log.kernels == []


def test_the_log_and_its_kernels_are_readable(device: str) -> None:
    x = lucid_gpu.rand(1000, device=device)
    with profiler.record() as log:
        x.exp().tanh().array
    (kernel,) = log.kernels
    assert "tanh" in kernel.source
    assert kernel.name == "lucid_exp_tanh"
    assert "lucid_exp_tanh" in str(log) and "4000" in str(log)
    assert "ops: exp, tanh" in str(kernel)
    assert "reads 4000 bytes" in repr(kernel)
