"""What the use of a second GPU must not change, on the CPU too, and where it is noticed."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import cat, flip  # by name, before a second GPU is used
from lucid_gpu.kernels import layer_norm, softmax
from lucid_gpu.nn import functional as F


def test_a_tensor_made_while_its_gpu_was_current(driver: Any) -> None:
    with torch.cuda.device(1):
        x = torch.arange(1.0, 4.0, device="cuda")
    for made in (x.flip(0), flip(x, [0]), cat([x, x]), x.roll(1), x.sort()[0], x.topk(2)[0]):
        assert made.device == torch.device("cuda:1")
        assert made.array.device.id == 1
    assert x.flip(0).tolist() == [3, 2, 1] and x.roll(1).tolist() == [3, 1, 2]
    assert cat([x, x]).tolist() == [1, 2, 3, 1, 2, 3]


def test_kernels_take_memory_where_their_arrays_are(driver: Any) -> None:
    x = torch.randn(4, 64, device="cuda:1").array
    y, known = layer_norm.normalized(x, None, None, 1e-5, False)
    made = [y, known, softmax.forward(x, 1, False)]
    made += layer_norm.gradients(x, x, None, known, layer_norm.Wanted(True, False, True))[::2]
    assert [array.device.id for array in made] == [1] * 5


def test_a_kernel_starts_where_its_arrays_are_each_time(driver: Any) -> None:
    x = torch.randn(4, 64, device="cuda:0")
    wanted = x.softmax(1).tolist()
    for index in (1, 1, 0, 1, 0, 0):
        y = softmax.forward(x.to(f"cuda:{index}").array, 1, False)
        assert (y.device.id, y.tolist()) == (index, wanted)


def test_a_gradient_is_laid_out_as_its_leaf_where_it_is(driver: Any) -> None:
    for index in (0, 1):
        x = torch.arange(6.0, device=f"cuda:{index}").reshape(2, 3).t().detach().requires_grad_()
        torch.tanh(x).sum(0).backward(torch.ones(2, device=x.device))
        y = x.detach().clone().requires_grad_()
        F.layer_norm(y, (2,)).backward(torch.arange(6.0, device=x.device).reshape(3, 2))
        for leaf in (x, y):
            assert leaf.grad.stride() == leaf.stride() == (1, 3)
            assert leaf.grad.device == leaf.device and leaf.grad.isfinite().all()
        torch.cuda.synchronize(index)


def slow(x: Any) -> Any:
    for _ in range(4):
        x = torch.softmax(x @ x, -1)
    return x


WAITS = {
    "wait_stream": lambda side, usual: usual.wait_stream(side),
    "wait_event": lambda side, usual: usual.wait_event(side.record_event()),
    "synchronize": lambda side, usual: side.synchronize(),
}


@pytest.mark.parametrize("how", WAITS)
def test_its_default_stream_is_waited_for_from_the_first(how: str, driver: Any) -> None:
    x = torch.eye(16, device="cuda:1")
    wanted = slow(x).tolist()
    for seed in range(8):
        with driver.order(seed):
            side, usual = torch.cuda.Stream("cuda:1"), torch.cuda.default_stream("cuda:1")
            with torch.cuda.stream(side):
                y = slow(x)
            WAITS[how](side, usual)
            assert (y * 1).tolist() == wanted
            z = slow(x)
            WAITS[how](usual, side)
            with torch.cuda.stream(side):
                assert (z * 1).tolist() == wanted
            assert torch.cuda.current_device() == 0


def test_a_pass_back_from_the_first_waits_for_its_streams(driver: Any) -> None:
    x = torch.eye(16, device="cuda:1")
    w = torch.ones(16, 16, device="cuda:1", requires_grad=True)
    found = []
    for seed in range(8):
        with driver.order(seed):
            side = torch.cuda.Stream("cuda:1")
            side.wait_stream(torch.cuda.default_stream("cuda:1"))
            with torch.cuda.stream(side):
                loss = (slow(x * w) * x).sum()
            (gradient,) = torch.autograd.grad(loss, w)
            found.append(gradient.tolist())
    loss = (slow(x * w) * x).sum()
    torch.cuda.synchronize(1)
    loss.backward()
    assert found == [w.grad.tolist()] * 8


def test_threads_begin_on_the_first_gpu(driver: Any) -> None:
    x, found = torch.arange(1.0, 4.0, device="cuda:1"), []

    def work() -> None:
        y = x.clone().requires_grad_()
        (torch.cat([y, y * 2]).sort()[0] ** 2).sum().backward()
        found.append(y.grad.tolist())

    team = [threading.Thread(target=work) for _ in range(4)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert found == [[10, 20, 30]] * 4


def test_another_gpu_is_refused_by_name(driver: Any) -> None:
    first, second = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
    for function in (torch.exp, torch.cumsum):
        more = (0,) if function is torch.cumsum else ()
        with pytest.raises(RuntimeError, match="same device.*cuda:0 and out= is on cuda:1"):
            function(first, *more, out=second)
    assert second.tolist() == [1, 1, 1] and second.device == torch.device("cuda:1")
    x = torch.ones(3, device="cuda:0", requires_grad=True)
    for gradient in (second, torch.ones(3)):
        with pytest.raises(RuntimeError, match="at index 0 - expected device cuda:0 but got c"):
            (x * 2).backward(gradient)
    assert x.grad is None
    (x * 2).sum().backward(torch.tensor(3.0))
    assert x.grad.tolist() == [6, 6, 6]


def test_the_cpu_is_as_before(driver: Any) -> None:
    """vmap, autocast, sparse gradients and signatures look at the same functions."""
    torch.ones(1, device="cuda:1")
    assert torch.vmap(lambda x: x.sum())(torch.ones(2, 3)).tolist() == [3, 3]
    losses = torch.vmap(F.mse_loss)(torch.ones(2, 3), torch.zeros(2, 3))
    assert losses.tolist() == [1, 1]
    pairs = torch.vmap(lambda v: torch.cat([v, v]).cumsum(0))(torch.ones(2, 2, device="cuda:1"))
    assert pairs.tolist() == [[1, 2, 3, 4]] * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.nn.LSTM(3, 4)(torch.ones(2, 1, 3))[0].dtype is torch.bfloat16
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    assert table.weight.grad.to_dense().sum().item() == 4
    assert [*inspect.signature(torch.cat).parameters][:2] == ["tensors", "dim"]


def test_sparse_tensors_are_where_they_were_made(driver: Any) -> None:
    dense = (torch.eye(2, device="cuda:1") * 3).to_sparse().to_dense()
    assert dense.tolist() == [[3, 0], [0, 3]] and dense.array.device.id == 1


REFUSED = {
    "x[i]": lambda x, i: x[i],
    "x[1, i]": lambda x, i: x[1, i],
    "x[mask]": lambda x, i: x[torch.ones(2, 3, device="cuda:0") > 0],
    "x[i] = 0": lambda x, i: x.__setitem__(i, 0.0),
    "take": lambda x, i: x.take(i),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "scatter": lambda x, i: x.scatter(0, i.reshape(1, 2), 0.0),
    "gather": lambda x, i: x.gather(0, i.reshape(1, 2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_indices_on_another_gpu_are_refused(name: str, driver: Any) -> None:
    x = torch.arange(6.0, device="cuda:1").reshape(2, 3)
    with pytest.raises(RuntimeError, match="same device"):
        REFUSED[name](x, torch.tensor([0, 1], device="cuda:0"))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x[torch.tensor([1])].tolist() == [[3, 4, 5]]


def test_a_gpu_that_there_is_not(driver: Any) -> None:
    x = torch.ones(2, device="cuda")
    calls = [lambda: torch.ones(3, device="cuda:7"), lambda: x.to("cuda:7"), lambda: x.cuda(7)]
    for call in calls:
        with pytest.raises(RuntimeError, match="there is no device 7, this machine has 2"):
            call()
