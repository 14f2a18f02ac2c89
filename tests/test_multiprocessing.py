"""Tensors in memory that several processes see."""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import multiprocessing as mp
from lucid_gpu import nn
from tests.oracle import modules


def adds(queue: Any, answers: Any) -> None:
    """Writes into what comes, and answers with tensors of its own."""
    x, part, parameter, net = queue.get(timeout=60)
    with lucid_gpu.no_grad():
        x.add_(1)
        part[0] = 9
        net.weight.fill_(5)
    whole = lucid_gpu.arange(6).reshape(2, 3).clone().share_memory_()
    answers.put((whole[1:].T, type(parameter).__name__, parameter.requires_grad, parameter.tag))
    answers.get(timeout=60)  # what was sent lives until it has been received


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_both_processes_see_writes(method: str) -> None:
    context = mp.get_context(method)
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=adds, args=(queue, answers))
    process.start()
    x, y = lucid_gpu.zeros(1000).share_memory_(), lucid_gpu.zeros(3, 4).share_memory_()
    parameter, net = nn.Parameter(lucid_gpu.ones(())).share_memory_(), nn.Linear(2, 1)
    net.weight.share_memory_()
    parameter.tag = "mine"
    queue.put((x, y[1, ::2], parameter, net))
    part, kind, required, tag = answers.get(timeout=60)
    answers.put(None)
    process.join(60)
    assert part.tolist() == [[3], [4], [5]] and (kind, required, tag) == ("Parameter", True, "mine")
    assert x.is_shared() and x.tolist() == [1] * 1000
    assert y.tolist() == [[0] * 4, [9, 0, 0, 0], [0] * 4]
    assert net.weight.tolist() == [[5, 5]] and net.weight.requires_grad
    assert not net.bias.is_shared()


def test_shared_memory_is_an_ordinary_tensor() -> None:
    for module, _ in modules():
        x = module.arange(4.0).requires_grad_()
        assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and x.is_leaf
        assert x[1:].is_shared() and x.detach().is_shared() and not (x * 2).is_shared()
        (x * x).sum().backward()
        assert x.grad.tolist() == [0, 2, 4, 6]
        with module.no_grad():
            x.add_(1)
        assert x.is_shared() and x.tolist() == [1, 2, 3, 4]
        assert module.ones(0, 2).share_memory_().is_shared()
        net = module.nn.Sequential(module.nn.Linear(2, 2), module.nn.BatchNorm1d(2))
        assert net.share_memory() is net
        assert all(t.is_shared() for t in [*net.parameters(), *net.buffers()])
        module.optim.SGD(net.parameters(), 0.1).step()


def test_all_tensors_on_a_memory_move_when_it_is_shared() -> None:
    for module, _ in modules():
        x = module.arange(6.0).reshape(3, 2).clone()
        column, parameter = x.t()[1], module.nn.Parameter(x)
        assert column.share_memory_() is column
        assert x.is_shared() and parameter.is_shared() and x.data.is_shared()
        x[1, 1] = 9
        assert column.tolist() == [1, 9, 5] and column.storage_offset() == 1
        assert parameter.tolist() == [[0, 1], [2, 9], [4, 5]] and column.stride() == (2,)
        y = (parameter * parameter).sum()
        y.backward()
        assert parameter.grad.tolist() == [[0, 2], [4, 18], [8, 10]]
        assert not x.clone().is_shared() and x.t().is_shared()


def test_files_are_closed_with_the_memory() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("there is no list of open files here")
    before = count()
    made = [lucid_gpu.ones(10).share_memory_() for _ in range(5)]
    assert count() >= before + 5
    del made
    assert count() == before


def test_refusals() -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        queue.put(lucid_gpu.ones(2, requires_grad=True) * 2)
    with pytest.raises(ValueError, match="there is only 'file_descriptor'"):
        mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()


def writes(i: int, x: Any) -> None:
    x[i] = i + 1


def fails(i: int, x: Any) -> None:
    if i == 1:
        raise KeyError("what it lacks")
    writes(i, x)


def stays(i: int) -> None:
    """Fails, or does not end when it is asked to."""
    if i == 1:
        raise KeyError("what it lacks")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(100)


def test_a_process_that_does_not_end_is_killed() -> None:
    context = mp.start_processes(stays, nprocs=2, join=False, start_method="fork")
    assert context is not None
    context.processes[1].join()  # it has failed before anybody waits for both
    began = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="KeyError"):
        while not context.join(grace_period=0.2):
            pass
    assert not any(p.is_alive() for p in context.processes)
    assert time.monotonic() - began < 50


def test_spawn() -> None:
    x = lucid_gpu.zeros(2)
    for method in ("fork", "spawn"):
        mp.start_processes(writes, (x,), start_method=method)
    assert x.tolist() == [0, 0]  # it was not shared
    x.share_memory_()
    mp.spawn(writes, (x,), nprocs=2)
    assert np.asarray(x).tolist() == [1, 2]
    with pytest.raises(mp.ProcessRaisedException, match="KeyError: 'what it lacks'") as raised:
        mp.start_processes(fails, (x,), nprocs=2, start_method="fork")
    assert raised.value.error_index == 1
