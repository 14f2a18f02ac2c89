"""Softmax by rows and lines: the CUDA C, run on the host, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.kernels import softmax
from lucid_gpu.nn import functional as F
from tests.slow import slow_but

KINDS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
ERRORS = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
ROWS = [(3, 1), (5, 10), (1, 31), (3, 33), (9, 64), (2, 1000), (3, 1023), (2, 1025), (1, 4096)]
LONG = [(2, 32768), (1, 131072), (2, 40001)]


def expected(x: Any, axis: int, log: bool) -> Any:
    x = x.astype(np.float64)
    apart = x - x.max(axis, keepdims=True)
    y = apart - np.log(np.exp(apart).sum(axis, keepdims=True))
    return y if log else np.exp(y)


def gradient(y: Any, g: Any, axis: int, log: bool) -> Any:
    y, g = y.astype(np.float64), g.astype(np.float64)
    if log:
        return g - np.exp(y) * g.sum(axis, keepdims=True)
    return y * (g - (y * g).sum(axis, keepdims=True))


def normal(shape: tuple[int, ...], kind: Any, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(kind)


def check(x: Any, axis: int, log: bool) -> None:
    error = ERRORS[x.dtype.name]
    y = softmax.forward.cuda_c(x, axis, log)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    tiny = 6e-8 if x.dtype == np.float16 else 1e-30  # a half's last place near zero
    np.testing.assert_allclose(
        y.astype(np.float64), expected(x, axis, log), error, error if log else tiny
    )
    g = normal(x.shape, x.dtype, 1)
    dx = softmax.backward.cuda_c(y, g, axis, log).astype(np.float64)
    right = gradient(y, g, axis, log)
    np.testing.assert_allclose(dx, right, 0, error * max(np.abs(right).max(), 1e-30))
    np.testing.assert_allclose(
        softmax.on_host(x, axis, log).astype(np.float64), expected(x, axis, log), error, error
    )
    dx = softmax.gradient_on_host(y, g, axis, log).astype(np.float64)
    np.testing.assert_allclose(dx, right, 0, error * max(np.abs(right).max(), 1e-30))


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 1000), 1), ((1000, 300), 0), ((3, 200, 600), 1)]
)
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_the_host_works_in_blocks(shape: Any, axis: int, kind: Any) -> None:
    x, g = normal(shape, kind), normal(shape, kind, 1)
    error = ERRORS[x.dtype.name]
    for log in (False, True):
        y = softmax.on_host(x, axis, log)
        wide = y.astype(np.float64)
        np.testing.assert_allclose(wide, expected(x, axis, log), error, error)
        dx, right = softmax.gradient_on_host(y, g, axis, log), gradient(y, g, axis, log)
        np.testing.assert_allclose(dx.astype(np.float64), right, 0, error * np.abs(right).max())


@pytest.mark.each_value
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("shape", ROWS)
def test_rows(shape: tuple[int, ...], kind: Any, log: bool) -> None:
    check(normal(shape, kind), 1, log)


@pytest.mark.parametrize("shape", LONG)
def test_long_rows(shape: tuple[int, ...]) -> None:
    check(normal(shape, np.float32), 1, False)
    check(normal(shape, ml_dtypes.bfloat16), 1, True)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 7), 1), ((33, 40), 0), ((2, 600, 3), 1)])
def test_lines(shape: tuple[int, ...], axis: int, kind: Any) -> None:
    check(normal(shape, kind), axis, False)
    check(normal(shape, kind), axis, True)


def test_lines_longer_than_registers() -> None:
    check(normal((1200, 33), np.float32), 0, False)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
def test_nothing(shape: tuple[int, ...]) -> None:
    x = normal(shape, np.float32)
    with profiler.record() as log:
        assert softmax.forward.cuda_c(x, len(shape) - 1, False).shape == shape
        assert softmax.backward.cuda_c(x, x, len(shape) - 1, False).shape == shape
    assert not log.kernels


@pytest.mark.parametrize("columns", [64, 1024, 70000])
def test_rows_that_begin_anywhere(columns: int) -> None:
    """An array that starts one element into its buffer, and a cotangent that does not."""
    memory = normal((2 * columns + 1,), np.float32)
    x = memory[1:].reshape(2, columns)
    check(x, 1, False)
    y, g = softmax.forward.cuda_c(x, 1, False), x
    np.testing.assert_allclose(
        softmax.backward.cuda_c(y, g, 1, False), gradient(y, g, 1, False), 1e-4, 1e-7
    )


def test_other_layouts() -> None:
    x = normal((40, 6), np.float32)
    for view in (x.T, x[:, ::-1], x[::2], np.broadcast_to(x[:1], x.shape)):
        check(view, 1, False)
        check(view, 0, True)


def test_infinite_scores_are_torchs() -> None:
    inf = np.inf
    x = np.array([[0, -inf], [-inf, -inf], [inf, 0], [np.nan, 0]], np.float32)
    nan = np.nan
    right = [[1, 0], [nan, nan], [nan, nan], [nan, nan]]
    wide = np.concatenate([x, np.full((4, 70000), -inf, np.float32)], 1)
    with np.errstate(all="ignore"):
        for one in (x, wide):
            np.testing.assert_array_equal(softmax.forward.cuda_c(one, 1, False)[:, :2], right)
            np.testing.assert_array_equal(softmax.on_host(one, 1, False)[:, :2], right)
        np.testing.assert_array_equal(softmax.forward.cuda_c(x.T.copy(), 0, False).T, right)


@pytest.mark.parametrize("columns", [10, 1000, 16384])
def test_one_kernel_reads_once_and_writes_once(columns: int) -> None:
    x = normal((4, columns), np.float32)
    with profiler.record() as log:
        y = softmax.forward.cuda_c(x, 1, False)
    assert [(k.bytes_read, k.bytes_written) for k in log.kernels] == [(x.nbytes, x.nbytes)]
    assert "held" in log.kernels[0].name  # in registers between the passes
    with profiler.record() as log:
        softmax.backward.cuda_c(y, x, 1, False)
    assert [(k.bytes_read, k.bytes_written) for k in log.kernels] == [(2 * x.nbytes, x.nbytes)]


# --- the op ---------------------------------------------------------------------------------------


@pytest.fixture
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors take the way of the GPU."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


@pytest.mark.usefixtures("by_kernel")
class TestOp:
    """`nn.functional.softmax` and `log_softmax` on their kernels."""

    @pytest.mark.each_value
    @pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
    @pytest.mark.parametrize("dim", [0, 1, -1])
    def test_gradients_of_every_order_and_mode(self, function: Any, dim: int) -> None:
        x = lucid_gpu.tensor(normal((2, 3), np.float64), requires_grad=True)
        options = {"check_forward_ad": True, "check_batched_grad": True}
        assert gradcheck(lambda x: function(x, dim), (x,), **options)
        assert gradgradcheck(lambda x: function(x, dim), (x,))

    def test_one_kernel_each_way(self) -> None:
        x = lucid_gpu.tensor(normal((4, 100), np.float32), requires_grad=True)
        g = lucid_gpu.tensor(normal((4, 100), np.float32, 1))
        with profiler.record() as log:
            y = F.softmax(x, 1)
            (dx,) = lucid_gpu.autograd.grad(y, x, g)
            dx.numpy()
        size = 400 * 4
        moved = [(k.bytes_read, k.bytes_written) for k in log.kernels]
        assert moved == [(size, size), (2 * size, size)]

    def test_only_the_result_is_kept(self) -> None:
        x = lucid_gpu.tensor(normal((2, 3), np.float64), requires_grad=True)
        kept: list[Any] = []

        def pack(t: Any) -> Any:
            kept.append(t)
            return t

        with lucid_gpu.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = F.softmax(x * 1, 1)
        assert [np.array_equal(t.detach().numpy(), y.detach().numpy()) for t in kept] == [True]
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 0, atol=1e-15)

    def test_a_result_that_was_written_is_refused(self) -> None:
        x = lucid_gpu.tensor(normal((2, 3), np.float64), requires_grad=True)
        y = F.softmax(x, 1)
        y.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_under_vmap(self) -> None:
        x = lucid_gpu.tensor(normal((5, 2, 3), np.float64))
        for dim in (0, 1):
            found = lucid_gpu.func.vmap(lambda x, dim=dim: F.log_softmax(x, dim))(x)
            right = expected(x.numpy(), dim + 1, True)
            np.testing.assert_allclose(found.numpy(), right, 1e-12)
