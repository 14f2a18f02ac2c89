"""Views and writes that the core makes in C beside the Python whose short cut they are."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import Tensor
from lucid_gpu.core.owner import Storage
from tests.core.test_native import at_each_collection, in_python, needs_core, python_calls

pytestmark = needs_core


class History:
    """A random history of views, writes, lent memory, hooks and reads; the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.lent: list[Any] = []
        self.seen: list[Any] = []
        for _ in range(3):
            shape = self.draw.choice([(4,), (2, 3), (3, 4), (2, 2, 2), (6,), ()])
            kind = self.draw.choice(["float32", "float32", "float64", "int64"])
            made = lucid_gpu.tensor((rng.uniform(0.5, 1.5, shape) * 4).astype(kind))
            if kind != "int64" and self.draw.random() < 0.4:
                self.leaves.append(made.requires_grad_())
            self.tensors.append(made)

    def run(self) -> list[Any]:
        """What the steps gave: elements, versions, gradients, and what errors said."""
        for _ in range(self.draw.randrange(6, 26)):
            recorded = self.draw.random() < 0.65
            try:
                with lucid_gpu.enable_grad() if recorded else lucid_gpu.no_grad():
                    self.step()
            except (RuntimeError, TypeError, IndexError, ValueError, AttributeError) as error:
                self.seen.append(f"{type(error).__name__}: {error}")
        try:
            for x in self.tensors:
                self.look(x)
            wanted = [x for x in self.tensors if x.requires_grad][-3:]
            if wanted:
                sum((x * x).sum().double() for x in wanted).backward()  # type: ignore[union-attr]
        except (RuntimeError, AttributeError) as error:
            self.seen.append(str(error))
        self.seen += [None if x.grad is None else x.grad.numpy().tobytes() for x in self.leaves]
        return self.seen

    def look(self, x: Tensor) -> None:
        marks = x.requires_grad, x.is_leaf, x._is_view(), x._creation, x.stride()
        version = None if x.is_inference() else x._version
        self.seen.append((x.detach().numpy().tobytes(), version, *marks))

    def like(self, x: Tensor) -> Tensor:
        """A tensor of the same shape and type."""
        same = [t for t in self.tensors if t.dtype is x.dtype and t.shape == x.shape]
        return self.draw.choice(same)

    def step(self) -> None:
        draw, x = self.draw, self.draw.choice(self.tensors)
        kinds = (self.write, self.view, self.parts, self.assign, self.compute, self.lend)
        made = draw.choice((*kinds, self.write, self.view, self.other))(x)
        made = made if isinstance(made, (tuple, list)) else (made,)
        self.tensors += [t for t in made[:3] if isinstance(t, Tensor) and t is not x]

    def write(self, x: Tensor) -> Any:
        y = self.like(x)
        writes: tuple[Callable[[], Any], ...] = (
            lambda: x.add_(1), lambda: x.mul_(y), lambda: x.copy_(y), lambda: x.fill_(2),
            x.zero_, lambda: x.sub_(y * 2), lambda: x.clamp_(1, 3), lambda: x.data.mul_(2),
        )  # fmt: skip
        return self.draw.choice(writes)()

    def view(self, x: Tensor) -> Any:
        n, d = x.ndim, self.draw.randrange(x.ndim + 1)
        if not n:
            return self.draw.choice((x.detach, lambda: x.view(1), lambda: x.expand(3)))()
        i = self.draw.randrange(x.shape[0])
        views: tuple[Callable[[], Any], ...] = (
            lambda: x[i], lambda: x[1:], lambda: x[..., :1], lambda: x[i : i + 1, ...],
            lambda: x.transpose(0, -1), lambda: x.unsqueeze(d), lambda: x.squeeze(0),
            lambda: x.view(-1), lambda: x.reshape((1, -1)), lambda: x.permute(*range(n)[::-1]),
            lambda: x.expand(2, *x.shape), lambda: x.detach(), lambda: x.data,
            lambda: x.view(*x.shape[::-1]),
        )  # fmt: skip
        return self.draw.choice(views)()

    def parts(self, x: Tensor) -> Any:
        dim = self.draw.randrange(-1, 1)
        cuts: tuple[Callable[[], Any], ...] = (
            lambda: x.split(2, dim), lambda: x.unbind(dim), lambda: x.chunk(2, dim),
            lambda: [*x], lambda: x.split([1, x.shape[dim] - 1], dim),
        )  # fmt: skip
        return self.draw.choice(cuts)()

    def assign(self, x: Tensor) -> None:
        i = self.draw.randrange(x.shape[0])
        value = self.draw.choice([1, 2.5, x[0], x[0] * 2, 300, float("inf"), True])
        if self.draw.random() < 0.3:
            x[i] += value
        else:
            x[(i, 0) if x.ndim > 1 and self.draw.random() < 0.3 else i] = value

    def compute(self, x: Tensor) -> Any:
        y = self.like(x)
        ops = (lambda: x * y, lambda: x + 1, x.clone, x.sum, lambda: (x * x).exp())
        return self.draw.choice(ops)()

    def lend(self, x: Tensor) -> None:
        if self.lent and self.draw.random() < 0.5:
            self.lent.pop()[...] += 1
        elif not x.requires_grad:
            self.lent.append(x.numpy())

    def other(self, x: Tensor) -> Any:
        what = self.draw.randrange(5)
        if what == 0 and x.requires_grad:
            x.register_hook(lambda g: self.seen.append(g.numpy().tobytes()))
        elif what == 1 and x.requires_grad and not x.is_leaf:
            x.retain_grad()
        elif what == 2:
            x.data = self.like(x).detach()
        elif what == 3 and len(self.tensors) > 3:
            self.tensors.remove(x)
        elif what == 4:
            with lucid_gpu.inference_mode():
                return x * 2
        self.look(x)
        return None


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_random_histories_are_those_in_python(start: int) -> None:
    for seed in range(start, start + 100):
        found = History(seed).run()
        with in_python():
            assert History(seed).run() == found, seed


x, image = lucid_gpu.rand(4, 6), lucid_gpu.rand(2, 3, 4, 5)
VIEWS: dict[str, tuple[int, Callable[[], Any]]] = {
    "view": (2, lambda: x.view(3, 8)),
    "reshape": (2, lambda: x.reshape(-1)),
    "t": (3, lambda: x.t()),
    "transpose": (3, lambda: image.transpose(1, 2)),
    "permute": (3, lambda: image.permute(1, 0, 3, 2)),
    "x[i]": (2, lambda: x[1]),
    "x[:, a:b]": (2, lambda: x[:, 1:3]),
    "unsqueeze": (3, lambda: x.unsqueeze(0)),
    "squeeze": (4, lambda: image.squeeze(1)),
    "expand": (4, lambda: x.expand(3, 4, 6)),
    "split": (3, lambda: x.split(2)),
    "chunk": (6, lambda: x.chunk(2, 1)),
    "unbind": (4, lambda: image.unbind(1)),
    "detach": (2, lambda: x.detach()),
    "data": (3, lambda: x.data),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_calls_little_python(name: str) -> None:
    most, make = VIEWS[name]
    assert min(python_calls(make) for _ in range(3)) <= most


def test_a_write_calls_little_python() -> None:
    y, flat, row = lucid_gpu.rand(4, 6), lucid_gpu.rand(64), lucid_gpu.rand(6)
    parts = flat.split(4)

    def assign() -> None:
        y[1] = 2.0

    def add_to_a_row() -> None:
        y[1] += 1.0

    steps: dict[Callable[[], Any], int] = {
        lambda: y.add_(1.0): 5,
        lambda: y.mul_(x): 4,
        lambda: y.copy_(x): 2,
        lambda: y.zero_(): 6,
        lambda: parts[3].add_(1.0): 6,
        assign: 2,
        add_to_a_row: 9,
        lambda: y[2].copy_(row): 4,
    }
    for step, most in steps.items():
        assert min(python_calls(step) for _ in range(4)) <= most, most


def test_the_number_of_views_does_not_matter() -> None:
    few, many = lucid_gpu.rand(64).split(4), lucid_gpu.rand(6400).split(4)

    def calls(parts: Any) -> int:
        def step() -> None:
            for part in parts[:8]:
                part.add_(1.0)

        return python_calls(step)

    assert calls(few) == calls(many)


def test_lists_of_what_lies_on_a_memory_stay_short() -> None:
    y = lucid_gpu.rand(4, 6)
    for _ in range(500):
        y[0], y.detach(), y.view(-1), y.t()
    storage = y._storage
    assert type(storage) is Storage
    assert max(map(len, (storage.tensors, storage.read, storage.cells))) < 40


def test_nothing_of_views_and_writes_stays_alive() -> None:
    y = lucid_gpu.rand(4, 6)

    def step() -> list[Any]:
        made = [y[0], y.detach(), y.view(-1), y.t(), *y.split(2), *y.unbind(1)]
        made[0].add_(1.0)
        y.mul_(2.0)
        y[1] = made[0]
        made[2].copy_(made[2] * 2)
        return made

    step()
    gc.collect()
    before = len(gc.get_objects())
    died = [weakref.ref(t) for _ in range(50) for t in step()]
    assert not [1 for r in died if r() is not None]
    del died
    gc.collect()
    assert len(gc.get_objects()) - before < 100  # weak references that a list has until it is due


WRITTEN_MEANWHILE: list[Callable[[Tensor], Any]] = [
    lambda x: x.detach(), lambda x: x.data, lambda x: x.split(2), lambda x: x[1:],
    lambda x: x.view(16), lambda x: x.unsqueeze(0), lambda x: x.unbind(),
]  # fmt: skip


@pytest.mark.parametrize("view", WRITTEN_MEANWHILE)
def test_memory_may_be_written_while_it_is_viewed(view: Callable[[Tensor], Any]) -> None:
    shared: list[Tensor] = []

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        x = lucid_gpu.arange(16.0).reshape(4, 4).clone()
        same = x.detach()
        shared[:] = x, same
        return lambda: view(x), lambda: same.fill_(1.0)

    view(lucid_gpu.ones(4, 4))
    for _ in at_each_collection(begin):
        x, same = shared
        record = x._storage
        assert all(isinstance(r(), (Tensor, type(None))) for r in (*record.tensors, *record.read))
        assert not any(isinstance(r(), Tensor) for r in record.cells)
        same.add_(1)
        x[0] = 3.0
        assert x.tolist() == same.tolist()


def test_what_retained_its_gradient_may_be_detached_and_written() -> None:
    def written() -> list[Any]:
        x = lucid_gpu.ones(3).requires_grad_() * 2
        x.retain_grad()
        return x.detach_().add_(1).tolist()

    assert written() == [3.0, 3.0, 3.0]
    with in_python():
        assert written() == [3.0, 3.0, 3.0]


def test_what_is_not_asked_right_is_refused() -> None:
    core: Any = __import__("lucid_gpu.tape.native", fromlist=["core"]).core
    for function in (core.parts, core.reshaped, core.picked, core.copy, core.assign):
        with pytest.raises(TypeError):
            function(x)
    assert core.copy(x, "no tensor") is core.assign(1, 0, x) is False
    assert core.picked(x, ..., None) is core.reshaped(x, (5, 5), None) is None
    assert core.parts(x, 7, 2, None, "") is None
