"""Random graphs: fused, op by op, and by plain NumPy they give the same.

A program is a list of numbers that `Machine` reads as instructions: ops, views, in-place writes,
reads, refills of a buffer NumPy shares. Every choice is made from what exists at that moment, so
all lists are programs and shrinking works.
"""

from __future__ import annotations

import gc
import math
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="the property tests need hypothesis: make test")
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid_gpu
from lucid_gpu import fusion

# LUCID_TEST_EXAMPLES=50 searches fifty times as long.
EXAMPLES = float(os.environ.get("LUCID_TEST_EXAMPLES", "1"))


def examples(count: int) -> Any:
    return settings(max_examples=math.ceil(count * EXAMPLES))


SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (4, 3), (4, 1), (1, 3), (2, 4, 3), (0, 3), (0,)]
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
    "tanh": np.tanh,
    "sin": np.sin,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp": lambda x: np.exp(x),
    "relu": lambda x: np.maximum(x, 0),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {"lt": np.less, "ge": np.greater_equal}
EXACT = {"neg", "abs", "square", "relu", *BINARY}  # of whole numbers
NUMBERS = (2, -1, 0, 1, 3, 5, -2, 4, 6, 7, 8, 9)
LARGEST = 1e4  # beyond it values are squashed


class Value:
    """A tensor, its model, and whether it is whole numbers however it is computed."""

    def __init__(self, tensor: Any, model: Any, exact: bool) -> None:
        self.tensor, self.model, self.exact = tensor, model, exact
        self.scale = float(np.abs(model).max(initial=1.0))


class Machine:
    """Runs one program on tensors and on NumPy arrays side by side."""

    def __init__(
        self, seed: int, kinds: list[int], device: str = "cpu", grad: bool = False
    ) -> None:
        rng = np.random.default_rng(seed)
        self.device, self.grad = device, grad
        self.values: list[Value] = []
        self.buffers: list[tuple[Any, Any]] = []
        for kind in kinds:
            self.values.append(self.make(rng, kind))

    def make(self, rng: Any, kind: int) -> Value:
        shape = SHAPES[kind % len(SHAPES)]
        d = ("float32", "float64", "float32", "int64")[kind // 16 % (3 if self.grad else 4)]
        array = np.asarray(rng.integers(-3, 4, shape), d)
        form = kind // 64 % 4
        if form == 1 and array.ndim > 1:  # strided
            model = np.ascontiguousarray(array.T).T
            tensor = lucid_gpu.tensor(np.ascontiguousarray(array.T), device=self.device)
            tensor = tensor.permute(*range(array.ndim)[::-1])
            return Value(self.leaf(tensor), model, True)
        if form == 2 and self.device == "cpu" and not self.grad:  # memory shared with NumPy
            self.buffers.append((array, shared := array.copy()))
            return Value(lucid_gpu.from_numpy(shared), array, True)
        return Value(self.leaf(lucid_gpu.tensor(array, device=self.device)), array, True)

    def leaf(self, tensor: Any) -> Any:
        if self.grad and tensor.is_floating_point():
            return tensor.detach().requires_grad_()
        return tensor

    def run(self, program: list[tuple[int, int, int, int]]) -> None:
        steps = [self.unary, self.binary, self.number, self.compare, self.binary, self.reduce]
        if not self.grad:
            steps += [self.view, self.write, self.assign, self.read, self.refill, self.alias]
        for kind, a, b, c in program:
            steps[kind % len(steps)](a, b, c)
            last = self.values[-1]
            if np.abs(last.model).max(initial=0) > LARGEST:
                last.tensor = last.tensor.to(lucid_gpu.float64).tanh()
                last.model = np.tanh(last.model.astype(np.float64))
                last.exact = False

    # --- the instructions ---------------------------------------------------------------------

    def pick(self, a: int) -> Value:
        return self.values[a % len(self.values)]

    def push(self, tensor: Any, model: Any, exact: bool, *sources: Value) -> None:
        model = np.asarray(model, tensor.dtype.numpy)
        value = Value(tensor, model, exact)
        value.scale = max([value.scale, *[s.scale for s in sources]])
        self.values.append(value)

    def unary(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        name = list(UNARY)[b % len(UNARY)]
        if name == "exp" and x.model.max(initial=0) > 5:
            name = "tanh"
        if x.tensor.dtype is lucid_gpu.bool:
            name = "square"
        tensor = getattr(x.tensor, name)()
        with np.errstate(all="ignore"):
            model = UNARY[name](x.model.astype(tensor.dtype.numpy))
        self.push(tensor, model, x.exact and name in EXACT, x)

    def fitting(self, x: Value, b: int) -> Value:
        """A second operand that broadcasts with the first."""
        fits = []
        for y in self.values:
            try:
                np.broadcast_shapes(x.model.shape, y.model.shape)
            except ValueError:
                continue
            fits.append(y)
        return fits[b % len(fits)]

    def binary(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        y = self.fitting(x, b)
        name = list(BINARY)[c % len(BINARY)]
        if lucid_gpu.bool in (x.tensor.dtype, y.tensor.dtype) and name == "sub":
            name = "mul"
        tensor = getattr(x.tensor, name)(y.tensor)
        kind = tensor.dtype.numpy
        model = BINARY[name](x.model.astype(kind), y.model.astype(kind))
        self.push(tensor, model, x.exact and y.exact, x, y)

    def number(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        n: Any = NUMBERS[b % len(NUMBERS)]
        if c % 2:
            n = float(n)
        name = ("add", "mul", "sub")[c % 3]
        if x.tensor.dtype is lucid_gpu.bool and name == "sub":
            name = "add"
        operator = {"add": lambda p, q: p + q, "mul": lambda p, q: p * q, "sub": lambda p, q: p - q}
        left = c % 5 == 0
        tensor = operator[name](n, x.tensor) if left else operator[name](x.tensor, n)
        kind = tensor.dtype.numpy
        other = np.asarray(n, kind)
        own = x.model.astype(kind)
        model = BINARY[name](other, own) if left else BINARY[name](own, other)
        self.push(tensor, model, x.exact, x)

    def compare(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        y = self.fitting(x, b)
        if not (x.exact and y.exact):  # rounding may decide
            return
        name = list(COMPARE)[c % 2]
        condition = getattr(x.tensor, name)(y.tensor)
        truth = COMPARE[name](x.model, y.model)
        if c % 4 < 2:
            self.push(condition, truth, True)
            return
        tensor = lucid_gpu.where(condition, x.tensor, y.tensor)
        self.push(tensor, np.where(truth, x.model, y.model), True, x, y)

    def reduce(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        if not x.model.ndim:
            return
        dim, keep = b % x.model.ndim, bool(c % 2)
        tensor = x.tensor.sum(dim, keepdim=keep)
        self.push(tensor, x.model.sum(dim, keepdims=keep), x.exact, x)

    def view(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        rank = x.model.ndim
        if not rank:
            return
        if c % 3 == 0 and rank > 1:
            self.push_view(x, x.tensor.transpose(0, rank - 1), np.swapaxes(x.model, 0, rank - 1))
        elif c % 3 == 1:
            step = 1 + b % 2
            self.push_view(x, x.tensor[b % 2 :: step], x.model[b % 2 :: step])
        else:
            self.push_view(x, x.tensor.unsqueeze(0), x.model[None])

    def push_view(self, x: Value, tensor: Any, model: Any) -> None:
        value = Value(tensor, model, x.exact)
        value.scale = x.scale
        self.values.append(value)

    def alias(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        if b % 2:
            self.push_view(x, x.tensor.detach(), x.model)
        else:
            self.push_view(x, x.tensor.clone(), x.model.copy())

    def write(self, a: int, b: int, c: int) -> None:
        """``x.add_(y)`` and the like; values on the memory see it, results made before do not."""
        x = self.pick(a)
        fits = [
            y
            for y in self.values
            if self.fits_into(y.model.shape, x.model.shape)
            and y.tensor.dtype.category <= x.tensor.dtype.category
        ]
        y = fits[b % len(fits)] if fits else x
        name = list(BINARY)[c % len(BINARY)]
        if x.tensor.dtype is lucid_gpu.bool:
            name = "maximum"
        if y.tensor.dtype is lucid_gpu.bool and name == "sub":
            name = "mul"
        kind = lucid_gpu.result_type(x.tensor, y.tensor).numpy
        result = BINARY[name](x.model.astype(kind), y.model.astype(kind))
        if np.abs(result).max(initial=0) > LARGEST:
            return
        if name in ("maximum", "minimum"):
            x.tensor.copy_(getattr(x.tensor, name)(y.tensor))
        else:
            getattr(x.tensor, name + "_")(y.tensor)
        x.model[...] = result.astype(x.model.dtype)
        self.spread(x, x.exact and y.exact, max(x.scale, y.scale))

    @staticmethod
    def fits_into(own: tuple[int, ...], target: tuple[int, ...]) -> bool:
        try:
            return np.broadcast_shapes(own, target) == target
        except ValueError:
            return False

    def spread(self, x: Value, exact: bool, scale: float) -> None:
        """What is on the written memory is as exact as what was written."""
        for value in self.values:
            if np.may_share_memory(value.model, x.model):
                value.exact = value.exact and exact
                value.scale = max(value.scale, scale)

    def assign(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        n = NUMBERS[b % len(NUMBERS)]
        if x.model.ndim and c % 2:
            x.tensor[c % 2 :] = n
            x.model[c % 2 :] = n
        else:
            x.tensor.fill_(n)
            x.model[...] = n

    def read(self, a: int, b: int, c: int) -> None:
        self.check(self.pick(a))

    def refill(self, a: int, b: int, c: int) -> None:
        """Somebody else writes a buffer that a tensor was made of."""
        if self.buffers:
            model, shared = self.buffers[a % len(self.buffers)]
            model[...] = shared[...] = NUMBERS[b % len(NUMBERS)]

    # --- the verdict --------------------------------------------------------------------------

    def check(self, value: Value) -> None:
        got = value.tensor.detach().cpu()
        assert got.dtype.numpy == value.model.dtype
        assert tuple(got.shape) == value.model.shape
        tolerance = 0 if value.exact else 1e-4
        np.testing.assert_allclose(
            got.numpy(force=True), value.model, rtol=tolerance, atol=tolerance * value.scale
        )

    def check_all(self, order: int) -> None:
        for value in self.values if order % 2 else self.values[::-1]:
            self.check(value)


PROGRAMS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
    min_size=1,
    max_size=25,
)
KINDS = st.lists(st.integers(0, 255), min_size=1, max_size=4)


@examples(150)
@given(seed=st.integers(0, 99), kinds=KINDS, program=PROGRAMS, order=st.integers(0, 1))
def test_random_graphs_agree_with_numpy(
    device: str, seed: int, kinds: list[int], program: Any, order: int
) -> None:
    machine = Machine(seed, kinds, device)
    machine.run(program)
    machine.check_all(order)


@examples(60)
@given(seed=st.integers(0, 99), kinds=KINDS, program=PROGRAMS)
def test_random_graphs_agree_with_numpy_op_by_op(
    device: str, seed: int, kinds: list[int], program: Any
) -> None:
    with fusion.eager():
        machine = Machine(seed, kinds, device)
        machine.run(program)
        machine.check_all(0)


def gradients(seed: int, kinds: list[int], program: Any, device: str, order: int) -> list[Any]:
    """First (and second) gradients of everything a program computed."""
    machine = Machine(seed, kinds, device, grad=True)
    count = len(machine.values)
    leaves = [v.tensor for v in machine.values if v.tensor.requires_grad]
    machine.run(program)
    roots = [v.tensor for v in machine.values[count:] if v.tensor.requires_grad]
    if not roots:
        return []
    found: list[Any] = []
    for level in range(order):
        total = sum((r.double() * (1 + k / 4)).sum() for k, r in enumerate(roots))
        grads = lucid_gpu.autograd.grad(
            total, leaves, create_graph=level + 1 < order, allow_unused=True
        )
        found += [None if g is None else g.detach().cpu().numpy().copy() for g in grads]
        roots = [g for g in grads if g is not None and g.requires_grad]
        if not roots:
            break
    return found


@examples(80)
@given(seed=st.integers(0, 99), kinds=KINDS, program=PROGRAMS, order=st.integers(1, 2))
def test_gradients_of_random_graphs_agree_with_op_by_op(
    device: str, seed: int, kinds: list[int], program: Any, order: int
) -> None:
    fused = gradients(seed, kinds, program, device, order)
    with fusion.eager():
        single = gradients(seed, kinds, program, device, order)
    for a, b in zip(fused, single, strict=True):
        if a is None or b is None:  # zero everywhere
            assert a is None or not a.any()
            assert b is None or not b.any()
        else:
            scale = float(np.abs(b).max(initial=1))
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * scale)


# --- long loops -----------------------------------------------------------------------------------


def test_a_loop_of_100_000_dependent_ops(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    y = x
    for _ in range(50_000):
        y = y * 0.5 + x
    np.testing.assert_allclose(y.tolist(), [2.0] * 3, rtol=1e-6)


def test_a_loop_of_100_000_ops_with_gradient(device: str) -> None:
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    y = x * 1
    for _ in range(50_000):
        y = y * 0.5 + x
    y.sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), [2.0] * 3, rtol=1e-5)


def test_a_loop_of_100_000_in_place_ops(device: str) -> None:
    x = lucid_gpu.zeros(3, device=device)
    for _ in range(100_000):
        x += 1
    assert x.tolist() == [100_000.0] * 3


def test_an_unread_loop_keeps_nothing(device: str) -> None:
    x = lucid_gpu.ones(1000, device=device)
    y = x
    references = []
    for i in range(5000):
        y = y * 0.5 + x
        if i % 500 == 0:
            references.append(weakref.ref(y))
    del y
    gc.collect()
    assert all(r() is None for r in references)


def test_a_loop_with_ever_new_numbers_makes_no_new_kernels(device: str) -> None:
    from lucid_gpu.core import program

    x = lucid_gpu.ones(5, device=device)
    for i in range(200):
        (x * (i + 0.5)).array
    before = len(program._programs)
    for i in range(200, 2000):
        (x * (i + 0.5)).array
    assert len(program._programs) - before < 20
    assert (x * 777.5).tolist() == [777.5] * 5


# --- buffers of others ----------------------------------------------------------------------------


def test_a_loader_that_refills_its_buffer_changes_no_earlier_result() -> None:
    buffer = np.zeros(4, np.float32)
    results = []
    for i in range(5):
        buffer[...] = i
        batch = lucid_gpu.from_numpy(buffer)
        results.append(batch * 2 + 1)
    assert [r.tolist() for r in results] == [[2.0 * i + 1] * 4 for i in range(5)]


def test_a_buffer_nobody_holds_is_read_when_needed_and_others_still_at_once() -> None:
    for op in (lambda t: t.relu(), lambda t: t + 1.5, lambda t: 2 - t, lambda t: t * t):
        alone = lucid_gpu.from_numpy(np.ones(3, np.float32))
        assert not op(alone)._expr.program.is_load
        buffer = np.ones(3, np.float32)
        result = op(lucid_gpu.from_numpy(buffer))
        expected = op(lucid_gpu.ones(3)).tolist()
        buffer[...] = 100
        assert result.tolist() == expected


def test_an_array_handed_out_may_be_written() -> None:
    x = lucid_gpu.ones(4)
    before = x + 1
    array = x.numpy()
    during = x + 1
    array[...] = 5
    assert x.tolist() == [5.0] * 4
    assert before.tolist() == during.tolist() == [2.0] * 4
    after = x + 1
    assert after.tolist() == [6.0] * 4
    del array
    x += 1
    assert x.tolist() == [6.0] * 4


def test_gradients_use_the_values_that_were_there() -> None:
    buffer = np.full(3, 2, np.float32)
    w = lucid_gpu.ones(3, requires_grad=True)
    y = w * lucid_gpu.from_numpy(buffer).clone()
    buffer[...] = 100
    y.sum().backward()
    assert w.grad.tolist() == [2.0] * 3
