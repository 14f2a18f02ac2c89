"""Arithmetic in a Function fuses with what is around it; arrays slot in where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.fusion import eager
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.profiler import Log, record
from tests.autograd.functions import exponential

SIZE = 1000
BYTES = 4 * SIZE


@pytest.fixture(autouse=True)
def lazy() -> Any:
    """Kernels are counted, also where LUCID_EAGER realizes every op by itself."""
    with eager(False):
        yield


class Swish(Function):
    """Elementwise, and saves its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * (s + x * s * (1 - s))


class Root(Function):
    """Elementwise, in the other form, and saves what it computes on its way."""

    @staticmethod
    def forward(x: Any) -> Any:
        return (x * x + 1).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0] / output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


class Reversed(Function):
    """Gives its input back, and its gradient negated."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return -g


class Pair(Function):
    """Two outputs."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        (x,) = ctx.saved_tensors
        return a * x.cos() - b * x.sin()


def alone(function: Any) -> Any:
    return function.apply


def summed(function: Any) -> Any:
    def both(x: Any) -> Any:
        a, b = function.apply(x)
        return a + b

    return both


FUNCTIONS = {
    "saving its input": alone(Swish),
    "saving its output": alone(exponential(lucid_gpu)),
    "saving an intermediate": alone(Root),
    "giving its input back": alone(Reversed),
    "of two outputs": summed(Pair),
}


def leaf(device: str) -> Any:
    return lucid_gpu.rand(SIZE, device=device, requires_grad=True)


def moved(log: Log) -> list[tuple[int, int]]:
    return [(k.bytes_read, k.bytes_written) for k in log.kernels]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_between_ops_is_one_kernel_forward_and_one_backward(
    name: str, device: str
) -> None:
    f = FUNCTIONS[name]
    x, g = leaf(device), lucid_gpu.rand(SIZE, device=device)
    y = f(x * 3) * 2 + 1
    assert [k.ops[-2:] for k in lucid_gpu.explain(y).kernels] == [("mul", "add")]
    with record() as forward:
        y.tolist()
    with record() as backward:
        y.backward(g)
        x.grad.tolist()
    assert moved(forward) == [(BYTES, BYTES)]  # reads x, writes y
    reads = BYTES if name == "giving its input back" else 2 * BYTES
    assert moved(backward) == [(reads, BYTES)]  # reads x and g, writes the gradient of x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_needs_no_kernel_if_only_the_gradient_is_read(name: str, device: str) -> None:
    x = leaf(device)
    with record() as log:
        FUNCTIONS[name](x * 3).backward(lucid_gpu.ones(SIZE, device=device))
        x.grad.tolist()
    assert len(log) == 1


def test_chains_of_functions_fuse(device: str) -> None:
    x, g = leaf(device), lucid_gpu.rand(SIZE, device=device)
    y = x
    for f in (Swish, Root, exponential(lucid_gpu), Reversed):
        y = f.apply(y) * 0.5
    with record() as forward:
        y.tolist()
    with record() as backward:
        y.backward(g)
        x.grad.tolist()
    assert moved(forward) == [(BYTES, BYTES)]
    assert moved(backward) == [(2 * BYTES, BYTES)]


def test_a_loss_over_a_function_is_two_kernels_or_one(device: str) -> None:
    """CUDA C stores the gradient in the pass that sums the loss."""
    x = leaf(device)
    with record() as log:
        loss = (Swish.apply(x) * 2 + 1).sum()
        loss.backward()
        x.grad.tolist()
    apart, together = [(BYTES, 4), (BYTES, BYTES)], [(BYTES, BYTES + 4)]
    assert moved(log) == (together if runs_cuda_c(x.device) else apart)


def test_second_derivatives_through_a_function_fuse(device: str) -> None:
    x = leaf(device)
    ones = lucid_gpu.ones(SIZE, device=device)
    (first,) = lucid_gpu.autograd.grad(Swish.apply(x) * 2, x, ones, create_graph=True)
    (second,) = lucid_gpu.autograd.grad(first * 3, x, ones)
    assert len(lucid_gpu.explain(second).kernels) == 1
    with record() as log:
        second.tolist()
    assert moved(log) == [(2 * BYTES, BYTES)]  # reads x and the ones


def test_fused_and_eager_agree(device: str) -> None:
    def gradients() -> Any:
        lucid_gpu.manual_seed(3)
        found = []
        for f in FUNCTIONS.values():
            x = leaf(device)
            y = f(x * 3) * 2 + 1
            y.backward(lucid_gpu.rand(SIZE, device=device))
            found += [y.detach().cpu().numpy(), x.grad.cpu().numpy()]
        return found

    fused = gradients()
    with lucid_gpu.fusion.eager():
        eager = gradients()
    for a, b in zip(fused, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# --- arrays ---------------------------------------------------------------------------------------


def array_of(tensor: Any) -> Any:
    """The tensor's own array, as a user asks for it."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor.cupy()


def test_arrays_are_handed_out_and_taken_back_without_a_copy(device: str) -> None:
    seen: list[bool] = []

    def shares(a: Any, b: Any) -> bool:
        if device == "cpu":
            return np.shares_memory(a, b)
        return bool(a.data.ptr == b.data.ptr)

    class Raw(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            array = array_of(x)
            seen.append(shares(array, array_of(x)))
            result = array * array
            y = lucid_gpu.as_tensor(result)
            seen.append(shares(array_of(y), result))
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append(x.requires_grad and not lucid_gpu.is_grad_enabled())
            return lucid_gpu.as_tensor(array_of(g) * 2 * array_of(x))

    x = lucid_gpu.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = Raw.apply(x * 2)
    assert y.tolist() == [4.0, 16.0, 36.0]
    (y * 3).sum().backward()
    assert x.grad.tolist() == [24.0, 48.0, 72.0]
    assert seen == [True, True, True]


def test_an_array_written_in_forward_is_a_dirty_input(device: str) -> None:
    class AddOne(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            array = array_of(x)
            array += 1
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    h = x * 2
    before = h * h
    y = AddOne.apply(h)
    assert y is h and h.tolist() == [3.0, 5.0]
    assert h._version == 1
    (y * y).sum().backward()
    assert x.grad.tolist() == [12.0, 20.0]
    assert before.tolist() == [4.0, 16.0]


def test_arrays_of_recorded_tensors_are_refused_in_a_backward_that_is_recorded(device: str) -> None:
    class Raw(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return lucid_gpu.as_tensor(array_of(g) * 2)

    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    weights = lucid_gpu.ones(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="on Tensor that requires grad"):
        lucid_gpu.autograd.grad(Raw.apply(x), x, weights, create_graph=True)


# --- a global that keeps a tensor -----------------------------------------------------------------


def test_a_global_may_keep_a_tensor(device: str) -> None:
    kept: list[Any] = []

    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            kept.append(x * x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3 * kept[-1]

    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    for _ in range(2):
        Keeps.apply(x).sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]
    assert [t.tolist() for t in kept] == [[1.0, 4.0]] * 2
    assert not kept[0].requires_grad
    assert (kept[0] * x).grad_fn is not None
    if device != "cpu":
        before = lucid_gpu.cuda.memory_allocated()
        Keeps.apply(lucid_gpu.rand(1000, device=device, requires_grad=True))
        kept[-1].tolist()
        assert lucid_gpu.cuda.memory_allocated() >= before + 4000


class _Tanh(Function):
    """Saves its output alone, as tutorials do."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = (x * 0.5).tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y) * 0.5


class _Cell(Function):
    """A turn of a recurrence, which saves an input, a weight and its output."""

    @staticmethod
    def forward(ctx: Any, h: Any, w: Any) -> Any:
        z = (h * w).tanh()
        ctx.save_for_backward(h, w, z)
        return z

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        h, w, z = ctx.saved_tensors
        d = g * (1 - z * z)
        return d * w, d * h


@pytest.mark.parametrize("form", ["outputs", "inputs too"])
def test_a_pass_back_computes_no_forward_again(form: str, device: str) -> None:
    x = lucid_gpu.rand(32, device=device).requires_grad_()
    w = lucid_gpu.rand(32, device=device).requires_grad_()
    y = x
    for _ in range(60):
        y = _Tanh.apply(y) if form == "outputs" else _Cell.apply(y, w)
    with record() as forward:
        y.array
    assert sum(k.ops.count("tanh") for k in forward.kernels) <= 2 * 60
    with record() as backward:
        y.sum().backward()
        for leaf in (x, w):
            if leaf.grad is not None:
                leaf.grad.array
    assert sum(k.ops.count("tanh") for k in backward.kernels) == 0


def test_a_saved_output_that_was_written_and_is_gone_is_refused(device: str) -> None:
    x = lucid_gpu.rand(8, device=device).requires_grad_()
    y = _Tanh.apply(x)
    y.add_(1)
    total = y.sum()
    del y
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_saved_output_keeps_its_value_when_its_name_is_given_another(device: str) -> None:
    x = lucid_gpu.rand(8, device=device).requires_grad_()
    y = _Tanh.apply(x)
    expected = (0.5 * (1 - y.detach().clone() ** 2)).tolist()
    y = y * 3
    y.sum().backward()
    assert np.allclose(x.grad.tolist(), 3 * np.array(expected), rtol=1e-6)
