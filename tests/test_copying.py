"""Copies, pickles and other processes: what arrives, and what stays shared."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import modules, plain


def _shallow(m: Any, d: str) -> Any:
    x = m.ones(2, device=d)
    y = copy.copy(x)
    y.add_(1)
    leaf = copy.copy(m.ones(2, device=d, requires_grad=True) * 2)
    return x, y, leaf, leaf.is_leaf, leaf.requires_grad


def _parameter(m: Any, d: str) -> Any:
    p = m.nn.Parameter(m.ones(2, device=d))
    p.name_of_mine = "p"
    p.grad = m.ones(2, device=d)
    c = copy.copy(p)
    with m.no_grad():
        c.mul_(3)
    (c * 2).sum().backward()
    deep = copy.deepcopy(p)
    with m.no_grad():
        deep.zero_()
    kinds = [type(t).__name__ for t in (c, deep, pickle.loads(pickle.dumps(p)))]
    return p, p.grad, c.grad, deep.grad, kinds, c.name_of_mine


def _module(m: Any, d: str) -> Any:
    net = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.ReLU()).to(d)
    net[0].weight.data.fill_(1)
    deep, other = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    net[0].weight.data.fill_(2)
    same = copy.copy(net)[0].weight is net[0].weight
    return deep[0].weight, other[0].weight, other[0].weight.requires_grad, same


def _twice(m: Any, d: str) -> Any:
    x = m.ones(3, device=d)
    a, b = pickle.loads(pickle.dumps((x, x)))
    a.add_(1)
    e, f = copy.deepcopy((x, x))
    f.add_(1)
    return a is b, a, e is f, e, x


def _shared(m: Any, d: str) -> Any:
    """Tensors of one memory stay of one memory in a deep copy, storages and gradients too."""
    x = m.arange(6.0, device=d)
    y = x[2:4].requires_grad_()
    y.grad = m.ones(2, device=d)
    a, b, store, slope = copy.deepcopy([x, y, x.storage(), y.grad])
    a[2] = 50
    (b * 2).sum().backward()
    plain = m.zeros(2, device=d)
    plain.grad = m.ones(2, device=d)
    same = [store[2], b.is_leaf, b.grad is slope]
    return a, b, b.grad, same, x, y.grad, copy.deepcopy(plain).grad


def _values(m: Any, d: str) -> Any:
    made = [m.ones((), device=d), m.ones(0, 2, device=d), m.ones(2, device=d).bool(),
            m.ones(2, device=d).bfloat16(), m.arange(6, device=d).reshape(2, 3).T]  # fmt: skip
    there = [pickle.loads(pickle.dumps(x, p)) for x in made for p in (2, 5)]
    return [(x.float(), str(x.dtype).split(".")[1], list(x.shape)) for x in there]


def _layouts(m: Any, d: str) -> Any:
    """Dimensions lie in memory as they did."""
    x = m.arange(120.0, device=d).reshape(2, 3, 4, 5)
    made = [x.contiguous(memory_format=m.channels_last), x.permute(3, 1, 0, 2).clone(), x.mT * 2]
    made.append(m.nn.Conv2d(2, 3, 3).to(d, memory_format=m.channels_last).weight.detach() * 0)
    copies = [pickle.loads(pickle.dumps(t, p)) for t in made for p in (2, 5)]
    copies += copy.deepcopy(made)
    return copies, [list(t.stride()) for t in copies]


CASES = {
    f.__name__[1:]: f for f in (_shallow, _parameter, _module, _twice, _shared, _values, _layouts)
}


@pytest.mark.parametrize("name", CASES)
def test_copies_are_pytorchs(name: str, device: str) -> None:
    found = [_plain(CASES[name](module, where)) for module, where in modules(device)]
    assert all(f == found[0] for f in found)


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else plain(value)


def test_what_is_no_leaf_is_not_copied_deeply() -> None:
    for module, _ in modules():
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(module.ones(2, requires_grad=True) * 2)


def doubled(queue: Any, answers: Any) -> None:
    x = queue.get(timeout=60)
    answers.put((x.detach() * 2, x.requires_grad, {"of": [str(x.dtype)]}))


def squared(x: Any) -> Any:
    return (x**2).sum()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=doubled, args=(queue, answers))
    process.start()
    queue.put(lucid_gpu.full((300, 300), 2.0, requires_grad=True))  # more than a pipe holds
    y, required, told = answers.get(timeout=60)
    process.join(60)
    assert y.shape == (300, 300) and y.sum().item() == 360_000
    assert required and told == {"of": ["lucid_gpu.float32"]}
    if method == "fork":
        with context.Pool(1) as pool:
            sums = pool.map(squared, [lucid_gpu.ones(3) * i for i in range(3)])
        assert [s.item() for s in sums] == [0, 3, 12]
