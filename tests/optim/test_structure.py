"""A step over many parameters: how many kernels, how many bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import optim, profiler
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.rows import table_of
from lucid_gpu.ops import foreach
from tests.oracle import torch_module

COUNT, SIZE = 100, 64
BYTES = COUNT * SIZE * 4  # of all parameters
# How often all parameters' worth of memory is read and written.
RULES: dict[str, tuple[Any, int, int]] = {
    "SGD": (lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1), 2, 1),
    "momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 3, 2),
    "Adam": (lambda p: optim.Adam(p, lr=0.1), 4, 3),
    "AdamW": (lambda p: optim.AdamW(p, lr=0.1), 4, 3),
    "AMSGrad": (lambda p: optim.Adam(p, lr=0.1, amsgrad=True), 5, 4),
}


@pytest.fixture(params=["as it is", "cuda c"])
def where(request: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "cuda c":
        if device != "cpu" or shutil.which("g++") is None:
            pytest.skip("a GPU runs CUDA C anyway; the host executor compiles with g++")
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    yield device


def step_of(make: Any, count: int, device: str, size: int = SIZE) -> list[Any]:
    """The kernels of a second step: the first makes the states."""
    parameters = [lucid_gpu.ones(size, device=device, requires_grad=True) for _ in range(count)]
    for p in parameters:
        p.grad = lucid_gpu.ones(size, device=device)
        p.grad.array
    optimizer = make(parameters)
    optimizer.step()
    with profiler.record() as log:
        optimizer.step()
    return list(log.kernels)


@pytest.mark.parametrize("name", RULES)
def test_a_step_over_a_hundred_tensors(name: str, where: str) -> None:
    """Parameters, gradients and states are read once, parameters and states written once."""
    make, reads, writes = RULES[name]
    kernels = step_of(make, COUNT, where)
    total = [sum(k.bytes_read for k in kernels), sum(k.bytes_written for k in kernels)]
    assert total == [reads * BYTES, writes * BYTES]
    two_tables = name == "AMSGrad" and runs_cuda_c(lucid_gpu.device(where))
    assert len(kernels) == (2 if two_tables else 1)


def test_a_full_table_is_one_launch(where: str) -> None:
    if not runs_cuda_c(lucid_gpu.device(where)):
        pytest.skip("NumPy has no tables")
    make, rows = RULES["Adam"][0], table_of(4, 6).rows  # it takes six numbers
    counts = [len(step_of(make, n, where, 3)) for n in (1, 7, rows, rows + 1, 2 * rows + 1)]
    assert counts == [1, 1, 1, 2, 3]


def test_settings_may_change_between_steps(where: str) -> None:
    """A learning rate that decays is a number of the kernel: nothing is traced again."""
    p, q = (lucid_gpu.ones(3, device=where, requires_grad=True) for _ in range(2))
    one, other = optim.SGD([p], lr=1.0), optim.SGD([q], lr=1.0)
    expected = 1.0
    for step in range(20):
        for x, optimizer in ((p, one), (q, other)):
            x.grad = lucid_gpu.ones(3, device=where)
            optimizer.param_groups[0]["lr"] = 0.1**step
            optimizer.step()
        expected -= 0.1**step
        assert p.tolist() == q.tolist() == pytest.approx([expected] * 3)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("SGD", {"momentum": 0.9}, {"momentum": 0.85}),
        ("Adam", {"betas": (0.9, 0.999)}, {"betas": (0.85, 0.99)}),
        ("NAdam", {"betas": (0.9, 0.999)}, {"betas": (0.85, 0.99)}),
        ("RAdam", {"betas": (0.9, 0.999)}, {"betas": (0.85, 0.99)}),
        *[
            (name, {"weight_decay": 0.1}, {"weight_decay": 0.07, **more})
            for name, more in {
                "SGD": {},
                "Adam": {"eps": 1e-5},
                "AdamW": {"eps": 1e-5},
                "NAdam": {"eps": 1e-5},
                "RAdam": {"eps": 1e-5},
                "ASGD": {"lambd": 0.01, "alpha": 0.5, "t0": 3.0},
                "Adagrad": {"eps": 1e-5, "lr_decay": 0.1},
                "Adadelta": {"rho": 0.8, "eps": 1e-5},
                "Adamax": {"betas": (0.85, 0.99), "eps": 1e-5},
                "RMSprop": {"alpha": 0.9},
            }.items()
        ],
        ("RMSprop", {"momentum": 0.5, "centered": True}, {"momentum": 0.4, "eps": 1e-5}),
        ("SGD", {"momentum": 0.9, "dampening": 0.1}, {"dampening": 0.2}),
        ("Rprop", {}, {"etas": (0.4, 1.3), "step_sizes": (1e-5, 10)}),
    ],
)
def test_what_schedulers_cycle_is_not_traced_again(name: str, before: Any, after: Any) -> None:
    p = lucid_gpu.ones(3, requires_grad=True)
    p.grad = lucid_gpu.ones(3)
    optimizer = getattr(optim, name)([p], lr=0.1, **before)
    for _ in range(2):  # SGD's first step takes no dampening
        optimizer.step()
    rules = len(foreach._traced)
    optimizer.param_groups[0].update(after)
    optimizer.step()
    assert len(foreach._traced) == rules
    _same_as_torch(name, before, after, p)


def _same_as_torch(name: str, before: Any, after: Any, p: Any) -> None:
    torch = torch_module()
    q = torch.ones(3, requires_grad=True)
    q.grad = torch.ones(3)
    optimizer = getattr(torch.optim, name)([q], lr=0.1, **before)
    for _ in range(2):
        optimizer.step()
    optimizer.param_groups[0].update(after)
    optimizer.step()
    assert p.tolist() == pytest.approx(q.tolist(), rel=1e-5)
