"""How much runs: kernels, and the bytes they move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import explain, profiler
from tests.oracle import agree

SIZE = 64 * 64 * 4  # bytes of one array of the chain


def chain(x: Any, r: Any) -> Any:
    """The gelu of the benchmarks with a gate: two inputs, fifteen ops."""
    inner = 0.79788456 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + inner.tanh()) * r + r.sigmoid() * x


@pytest.fixture
def inputs(device: str) -> tuple[lucid_gpu.Tensor, ...]:
    x, r = (lucid_gpu.rand(64, 64, device=device, requires_grad=True) for _ in range(2))
    return x, r, lucid_gpu.rand(64, 64, device=device)


def moved(kernels: Any) -> list[tuple[int, int]]:
    """Arrays read and written by each kernel."""
    return [(k.bytes_read / SIZE, k.bytes_written / SIZE) for k in kernels]


def test_the_chain_is_one_kernel_forward(inputs: Any) -> None:
    x, r, _ = inputs
    y = chain(x, r)
    assert moved(explain(y).kernels) == [(2, 1)]
    with profiler.record() as log:
        y.array
    assert moved(log.kernels) == [(2, 1)]


def test_the_chain_is_one_kernel_backward(inputs: Any) -> None:
    x, r, g = inputs
    y = chain(x, r)
    y.array
    with profiler.record() as log:
        y.backward(g)
        assert log.kernels == []  # nobody has looked yet
        assert moved(explain(x.grad, r.grad).kernels) == [(3, 2)]
        x.grad.array, r.grad.array
    assert moved(log.kernels) == [(3, 2)]


def test_what_a_loop_carries_along_is_computed_once(inputs: Any) -> None:
    """Two rolls read one cotangent: the kernel that stores it stores the state's too."""
    x, _, g = inputs
    state = x
    for _ in range(5):
        state = state + 0.1 * (state.roll(1, 0) + state.roll(1, 1) - 2 * state)
    state.array
    with profiler.record() as log:
        state.backward(g)
        x.grad.array
    assert moved(log.kernels) == [(1, 1), (2, 2), (2, 2), (2, 2), (2, 2), (2, 1)]


def test_forward_and_backward_are_one_kernel_where_the_value_is_read_last(inputs: Any) -> None:
    x, r, g = inputs
    y = chain(x, r)
    with profiler.record() as log:
        y.backward(g)
        assert moved(explain(y, x.grad, r.grad).kernels) == [(3, 3)]
        y.array, x.grad.array, r.grad.array
    assert moved(log.kernels) == [(3, 3)]


def test_reading_it_detached_is_the_same_kernel(inputs: Any) -> None:
    x, r, g = inputs
    y = chain(x, r)
    y.backward(g)
    with profiler.record() as log:
        value = y.detach()
        value.array, x.grad.array, r.grad.array
    assert moved(log.kernels) == [(3, 3)]
    assert value.array is y.array


def test_reading_a_gradient_first_computes_the_value_too(inputs: Any) -> None:
    x, r, g = inputs
    y = chain(x, r)
    y.backward(g)
    with profiler.record() as log:
        r.grad.array, x.grad.array, y.array
    assert len(log.kernels) == 1


def test_a_loss_read_after_backward_costs_no_kernel_of_its_own(inputs: Any) -> None:
    x, r, _ = inputs
    with profiler.record() as log:
        loss = chain(x, r).sum()
        loss.backward()
        loss.item(), x.grad.array, r.grad.array
    assert len(log.kernels) == 2  # the sum, and both gradients


def test_a_sum_takes_in_what_feeds_it(device: str) -> None:
    x = lucid_gpu.rand(100, 50, device=device)
    with profiler.record() as log:
        (x * 2 + 1).exp().sum(0).array
    (kernel,) = log.kernels
    assert kernel.ops == ("mul", "add", "exp", "sum")
    assert (kernel.bytes_read, kernel.bytes_written) == (100 * 50 * 4, 50 * 4)


def test_the_gradient_of_a_bias_does_not_store_the_product_it_sums(device: str) -> None:
    x = lucid_gpu.rand(100, 50, device=device)
    bias = lucid_gpu.rand(50, device=device, requires_grad=True)
    y = (x + bias).tanh()
    y.array
    g = lucid_gpu.rand(100, 50, device=device)
    with profiler.record() as log:
        y.backward(g)
        bias.grad.array
    (kernel,) = log.kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * 100 * 50 * 4, 50 * 4)


def test_broadcast_operands_are_read_once(device: str) -> None:
    row, column = lucid_gpu.rand(1, 500, device=device), lucid_gpu.rand(300, 1, device=device)
    (kernel,) = explain(row * column + 1).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (800 * 4, 300 * 500 * 4)


def test_equal_values_are_computed_once(device: str) -> None:
    x = lucid_gpu.rand(10, device=device)
    (kernel,) = explain(x.exp() * x.exp() + x.exp()).kernels
    assert kernel.ops.count("exp") == 1


def test_functions_of_a_user_fuse_with_what_is_around_them(device: str) -> None:
    class Cube(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    x = lucid_gpu.rand(10, device=device, requires_grad=True)
    x.array
    with profiler.record() as log:
        y = Cube.apply(x * 2) + 1
        y.array
    assert len(log.kernels) == 1
    g = lucid_gpu.rand(10, device=device)
    g.array
    with profiler.record() as log:
        y.backward(g)
        x.grad.array
    assert len(log.kernels) == 1


def test_a_long_chain_is_cut_at_the_limit(device: str) -> None:
    y = x = lucid_gpu.rand(10, device=device)
    with profiler.record() as log:
        for _ in range(1000):
            y = y * 1.001 + x
        y.array
    assert 1000 * 2 / 96 <= len(log.kernels) <= 60


def test_many_arrays_are_cut_at_the_limit(device: str) -> None:
    arrays = [lucid_gpu.rand(10, device=device) for _ in range(100)]
    total = arrays[0]
    for a in arrays[1:]:
        total = total + a
    with profiler.record() as log:
        total.array
    assert all(len(k.plan.loads) <= 25 for k in log.kernels)
    expected = sum(float(a[3].item()) for a in arrays)
    assert total[3].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rows", [3, 300])
def test_an_op_whose_name_begins_as_a_small_value_does_is_no_parameter(
    rows: int, device: str
) -> None:
    """Values computed once are called h0, h1, ...; the line of ``hypot`` begins with an h too."""
    x = lucid_gpu.full((1, 1), 3.0, device=device)
    y = lucid_gpu.ones(rows, 300, device=device)
    assert (lucid_gpu.hypot(x, x + 1) * y).sum().item() == 5 * rows * 300


def test_a_masked_cotangent_is_stored_once_and_the_bias_gradient_sums_it(device: str) -> None:
    sizes = ((8, 16), (32, 16), (32,), (4, 32))
    x, w, b, w2 = (lucid_gpu.rand(*s, device=device, requires_grad=True) for s in sizes)
    y = (lucid_gpu.nn.functional.linear(x, w, b).relu() @ w2.T).sum()
    with profiler.record() as log:
        y.backward()
    assert len([k for k in log.kernels if "where" in k.ops]) == 1
    assert {k.ops for k in log.kernels if k.name.endswith("_sum")} == {("sum",)}  # what is stored


def test_a_costly_cotangent_is_stored_once_for_sums_over_several_axes() -> None:
    """What a kernel matrix of 200 points passes on: to rows, to columns, to all and to products."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((), (200, 1), (200,), (200, 200))]

    def loss(size: Any, rows: Any, columns: Any, products: Any) -> Any:
        return (size - (rows + columns - 2 * products) ** 2).exp()

    agree(lambda _, *tensors: loss(*tensors), *arrays, device="cpu", order=1, rtol=1e-9, atol=1e-12)
    tensors = [lucid_gpu.tensor(a, requires_grad=True) for a in arrays]
    y = loss(*tensors).sum()
    y.item()
    with profiler.record() as log:
        y.backward()
        [t.grad.array for t in tensors]
    assert len([k for k in log.kernels if "exp" in k.ops]) == 1


@pytest.mark.parametrize("gate", ["sigmoid", "hardsigmoid", "relu6"])
def test_a_cotangent_that_reads_a_sum_is_summed_again(gate: str, device: str) -> None:
    """Squeeze and excitation: what a sum over the image gives goes on, and is summed for a bias."""
    arrays = [np.random.default_rng(0).standard_normal(s) for s in ((2, 3, 4, 4), (3, 3, 1, 1), 3)]

    def gradients(m: Any, x: Any, w: Any, b: Any) -> Any:
        f = m.nn.functional
        x, w, b = (t.detach().clone().requires_grad_() for t in (x, w, b))  # shared with no array
        y = x * getattr(f, gate)(f.conv2d(f.adaptive_avg_pool2d(x, 1), w, b))
        return m.autograd.grad((y**3).sum(), (x, w, b))  # of what nobody has read

    agree(gradients, *arrays, device=device, order=0)


def test_gradients_of_slices_share_a_kernel(device: str) -> None:
    x = lucid_gpu.rand(6, 3, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    y = (x[:, 0].sin() * x[:, 1].exp() * x[:, 2].cosh()).sum()
    y.item()
    with profiler.record() as log:
        (g,) = lucid_gpu.autograd.grad(y, x)
        g.array
    assert [k.shape for k in log.kernels] == [(6,)]  # each is added where its column stands


@pytest.mark.parametrize("rows", [1, 3, 700, 5000])
def test_strided_vectors_give_what_contiguous_ones_do(rows: int, device: str) -> None:
    x = lucid_gpu.rand(rows, 4, 2, device=device)
    for a, b in ((x[:, 0, 0], x[:, 3, 1]), (x[:, 1], x[:, 2]), (x[::2, 1, 0], x[::2, 0, 0])):
        got = (a * b + a / (1 + b)).array
        a, b = a.contiguous(), b.contiguous()
        assert lucid_gpu.equal(lucid_gpu.as_tensor(got), a * b + a / (1 + b))


def test_the_gradient_of_a_sum_s_sum_is_no_kernel(device: str) -> None:
    """A cotangent that reads no array stays pending in every shape it takes."""
    x = lucid_gpu.rand(5, 4, device=device, requires_grad=True)
    y = (0.5 * x.sum(1) * 3 - 1).sum()
    y.item()
    with profiler.record() as log:
        y.backward()
        x.grad.array
    assert moved_elements(log.kernels) == [(0, 20)]


def moved_elements(kernels: Any) -> list[tuple[int, int]]:
    return [(k.bytes_read // 4, k.bytes_written // 4) for k in kernels]


def test_what_is_spread_out_is_computed_before(device: str) -> None:
    x, y = lucid_gpu.rand(300, 1, device=device), lucid_gpu.rand(300, 70, device=device)
    spread = x.expand(300, 70)
    found = spread.exp() * y + (spread * 2).sin()
    assert lucid_gpu.allclose(found, x.exp() * y + (x * 2).sin())
