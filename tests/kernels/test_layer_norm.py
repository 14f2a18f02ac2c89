"""Layer and root mean square normalization: CUDA C on the host, and NumPy, against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.kernels import layer_norm
from lucid_gpu.kernels.layer_norm import Wanted
from lucid_gpu.nn import functional as F
from tests.slow import slow_but

KINDS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
ERRORS = {"float64": 1e-11, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
SHAPES = [
    (1, 1), (5, 10), (3, 31), (2, 33), (40, 64), (3, 1000), (2, 1023), (2, 1025), (2, 8192),
]  # fmt: skip
ALL = Wanted(True, True, True)
EPS = 1e-5


def normal(shape: Any, kind: Any, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) + 0.5).astype(kind)


def problem(shape: tuple[int, int], kind: Any) -> tuple[Any, ...]:
    """Rows, cotangents, weight and bias."""
    sizes = (shape, shape, shape[1], shape[1])
    return tuple([normal(size, kind, seed) for seed, size in enumerate(sizes)])


def expected(x: Any, g: Any, w: Any, b: Any, rms: bool) -> list[Any]:
    """The result and all gradients, by definition, in float64."""
    x, g = x.astype(np.float64), g.astype(np.float64)
    w = np.ones(x.shape[1]) if w is None else w.astype(np.float64)
    b = np.zeros(x.shape[1]) if b is None else b.astype(np.float64)
    mean = 0 if rms else x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + EPS)
    n, h = (x - mean) * rstd, g * w
    dx = h - n * (h * n).mean(1, keepdims=True)
    dx = rstd * (dx if rms else dx - h.mean(1, keepdims=True))
    return [n * w + b, dx, (g * n).sum(0), g.sum(0)]


def on_the_host(x: Any, g: Any, w: Any, b: Any, rms: bool) -> list[Any]:
    y, known = layer_norm.on_host(x, w, b, EPS, rms)
    return [y, *layer_norm.gradients_on_host(x, g, w, known, ALL)]


def as_long_rows(*problem: Any) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_norm, "LONG", 8)
        return on_the_host(*problem)


def by_cuda_c(x: Any, g: Any, w: Any, b: Any, rms: bool) -> list[Any]:
    y, known = layer_norm.normalized.cuda_c(x, w, b, EPS, rms)
    return [y, *layer_norm.gradients.cuda_c(x, g, w, known, ALL)]


FAMILIES = pytest.mark.parametrize("family", [on_the_host, as_long_rows, by_cuda_c])


def check(family: Any, x: Any, g: Any, w: Any, b: Any, rms: bool) -> None:
    error = ERRORS[x.dtype.name]
    names = ("y", "dx", "dw", "db")
    for name, got, right in zip(
        names, family(x, g, w, b, rms), expected(x, g, w, b, rms), strict=True
    ):
        assert (got.dtype, got.shape) == (x.dtype, right.shape), name
        size = error * max(1, np.abs(right).max(initial=0))
        np.testing.assert_allclose(got.astype(np.float64), right, 0, size, err_msg=name)


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("shape", SHAPES)
def test_rows(shape: tuple[int, int], kind: Any, rms: bool, family: Any) -> None:
    x, g, w, b = problem(shape, kind)
    check(family, x, g, w, None if rms else b, rms)


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("columns", [20001, 131072])
def test_rows_longer_than_registers(columns: int, kind: Any, family: Any) -> None:
    x, g, w, b = problem((2, columns), kind)
    check(family, x, g, w, b, False)
    check(family, x, g, w, None, True)


@FAMILIES
def test_many_rows(family: Any) -> None:
    """More of them than groups of threads, which take them in turn."""
    x, g, w, b = problem((3001, 7), np.float32)
    check(family, x, g, w, b, False)
    x, g, w, b = problem((300, 40), np.float32)
    check(family, x, g, w, None, True)
    x, g, w, b = problem((7, 2048), np.float32)
    check(family, x, g, w, b, False)


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("rms", [False, True])
def test_without_weight_or_bias(rms: bool, family: Any) -> None:
    x, g, w, b = problem((4, 100), np.float32)
    for some in ((None, None), (w, None), (None, b)):
        check(family, x, g, *some, rms)


@FAMILIES
@pytest.mark.parametrize("shape", [(0, 5), (0, 4096)])
def test_no_rows(shape: tuple[int, int], family: Any) -> None:
    check(family, *problem(shape, np.float32), False)


@FAMILIES
def test_layouts_and_rows_that_begin_anywhere(family: Any) -> None:
    x, g, w, b = problem((6, 40), np.float32)
    check(family, x[::-1, ::2], g[:, ::-2], w[::2], b[20:], False)
    for columns in (64, 20000):
        memory = normal((2 * columns + 1,), np.float32, 5)
        x, g, w, b = problem((2, columns), np.float32)
        check(family, memory[1:].reshape(2, columns), g, w, b, False)


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("columns", [100, 20000])
def test_a_large_mean_does_not_cancel(columns: int, family: Any) -> None:
    x = (normal((2, columns), np.float32, 0) + np.float32(1e4)).astype(np.float32)
    y = family(x, x, None, None, False)[0]
    right = expected(x, x, None, None, False)[0]
    np.testing.assert_allclose(y, right, 0, 2e-3)  # x itself is rounded to 1e-3


def test_only_what_is_wanted() -> None:
    x, g, w, b = problem((150, 64), np.float32)
    _, known = layer_norm.normalized.cuda_c(x, w, b, EPS, False)
    for family in (layer_norm.gradients.cuda_c, layer_norm.gradients_on_host):
        all_of_them = family(x, g, w, known, ALL)
        for number in range(8):
            wanted = Wanted(bool(number & 1), bool(number & 2), bool(number & 4))
            for got, wish, right in zip(family(x, g, w, known, wanted), wanted, all_of_them):
                assert (got is not None) == wish
                if wish:
                    np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("columns", [64, 1024, 4096])
def test_kernels_and_bytes(columns: int) -> None:
    """Forward reads x once; backward x and g once, and little more than dx is written."""
    x, g, w, b = problem((8, columns), np.float32)
    with profiler.record() as log:
        _, known = layer_norm.normalized.cuda_c(x, w, b, EPS, False)
    (only,) = log.kernels
    assert "held" in only.name
    assert (only.bytes_read, only.bytes_written) == (x.nbytes + 2 * w.nbytes, x.nbytes + 2 * 8 * 4)
    with profiler.record() as log:
        layer_norm.gradients.cuda_c(x, g, w, known, ALL)
    first, second = log.kernels
    assert first.bytes_read == 2 * x.nbytes + w.nbytes + 2 * 8 * 4
    parts = first.bytes_written - x.nbytes
    assert parts % (2 * w.nbytes) == 0
    assert (second.bytes_read, second.bytes_written) == (parts, 2 * w.nbytes)
    with profiler.record() as log:
        only_x = Wanted(True, False, False)
        layer_norm.gradients.cuda_c(x, g, w, known[1:], only_x)
    assert len(log.kernels) == 1


# --- the op ---------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "host-cuda"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors go both ways: NumPy's and the GPU's."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", request.param == "host-cuda")


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (3,), w, b)


def rms(x: Any, w: Any, b: Any) -> Any:
    return F.rms_norm(x, (3,), w, 1e-3) + b


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("function", [layer, rms])
class TestOp:
    """`nn.functional.layer_norm` and `rms_norm`."""

    @pytest.mark.parametrize("executor", slow_but(["numpy", "host-cuda"], "numpy"), indirect=True)
    def test_gradients_of_every_order_and_mode(self, function: Any) -> None:
        arrays = (
            normal((2, 2, 3), np.float64, 0),
            normal(3, np.float64, 1),
            normal(3, np.float64, 2),
        )
        leaves = [lucid_gpu.tensor(a, requires_grad=True) for a in arrays]
        assert gradcheck(function, leaves, check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(function, leaves)

    def test_under_vmap(self, function: Any) -> None:
        x, w, b = (lucid_gpu.tensor(normal((4, 3), np.float64, i)) for i in range(3))
        right = np.stack([function(x[i], w[i], b[i]).numpy() for i in range(4)])
        vmap = lucid_gpu.func.vmap
        np.testing.assert_allclose(vmap(function)(x, w, b).numpy(), right, 1e-12)
        shared = np.stack([function(x[i], w[0], b[0]).numpy() for i in range(4)])
        found = vmap(function, in_dims=(0, None, None))(x, w[0], b[0])
        np.testing.assert_allclose(found.numpy(), shared, 1e-12)
        only = np.stack([function(x[0], w[i], b[i]).numpy() for i in range(4)])
        found = vmap(function, in_dims=(None, 0, 0))(x[0], w, b)
        np.testing.assert_allclose(found.numpy(), only, 1e-12)

    def test_gradients_nobody_wants_are_not_computed(self, function: Any) -> None:
        x, w, b = (lucid_gpu.tensor(normal(size, np.float64, 0)) for size in ((4, 3), 3, 3))
        w.requires_grad_()
        (dw,) = lucid_gpu.autograd.grad(function(x, w, b).sum(), w)
        assert dw.shape == (3,)


def test_three_kernels_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    x, g, w, b = (lucid_gpu.tensor(a) for a in problem((8, 64), np.float32))
    leaves = [t.requires_grad_() for t in (x, w, b)]
    with profiler.record() as log:
        found = lucid_gpu.autograd.grad(F.layer_norm(x, (64,), w, b), leaves, g)
        [t.numpy() for t in found]
    names = [k.name.removeprefix("lucid_layer_norm_").split("_float32")[0] for k in log.kernels]
    assert names == ["held", "backward_held", "parts"]


@pytest.mark.parametrize("shape", [(70, 128), (5, 7)])  # recorded calls, and NumPy in blocks
def test_what_flows_past_the_layer_is_added_in_the_same_walk(
    shape: tuple[int, int], device: str
) -> None:
    """A hook on the layer's node keeps the engine from handing the sum over; nothing changes."""
    x, g, w, b = problem(shape, np.float32)
    found = []
    for hooked in (False, True):
        leaf, weight, bias = (
            lucid_gpu.tensor(a, device=device, requires_grad=True) for a in (x, w, b)
        )
        past = leaf * 2
        past.detach().cpu().numpy()  # so that what flows past is an array
        y = F.layer_norm(past, shape[1:], weight, bias)
        if hooked:
            y.grad_fn.register_hook(lambda *gradients: None)
        (past + y).backward(lucid_gpu.tensor(g, device=device))
        found.append([t.grad.cpu().numpy() for t in (leaf, weight, bias)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    double = expected(x * 2.0, g, w, b, False)
    np.testing.assert_allclose(found[0][0], 2 * (double[1] + g), rtol=1e-4, atol=1e-4)


def test_a_layer_without_a_gradient_leaves_the_sum_alone() -> None:
    class Cut(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None

    x = lucid_gpu.ones(4, 8).requires_grad_()
    past = x.clone()
    past.detach().numpy()
    (past + Cut.apply(F.layer_norm(past, (8,)))).sum().backward()
    assert (x.grad == 1).all()
