"""Batch norm: statistics by CUDA C on the host and the NumPy twin against float64, op and torch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.device import CPU
from lucid_gpu.func import vmap
from lucid_gpu.fusion import eager
from lucid_gpu.kernels import batch_norm as family
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error, torch_module
from tests.slow import slow_but

rng = np.random.default_rng(0)
normal = rng.standard_normal
SHAPES = [
    (2, 1), (33, 5), (1025, 3), (700, 40), (1, 3, 2), (4, 3, 31), (8, 4, 33), (4, 3, 7, 7),
    (2, 2, 64, 64), (1, 2, 100, 101), (6, 8, 4), (2, 1030, 2), (1, 1, 20003), (3, 3, 1000),
]  # fmt: skip
TOLERANCE = {"float32": 3e-5, "float64": 1e-12, "float16": 3e-5, "bfloat16": 3e-5}


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request, monkeypatch):
    if request.param == "cuda c":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def axes(shape):
    return tuple(d for d in range(len(shape)) if d != 1)


@pytest.mark.each_value
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_figures_are_those_of_float64(shape, name, last, executor):
    x = (normal(shape) * 2 + 5).astype(dt.BY_NAME[name].numpy)
    if last:  # channels last in memory
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    wide, tolerance = x.astype(np.float64), TOLERANCE[name]
    mean, variance = family.statistics(x, CPU)
    assert mean.dtype == variance.dtype == dt.BY_NAME[name].compute.numpy
    np.testing.assert_allclose(mean, wide.mean(axes(shape)), rtol=tolerance)
    np.testing.assert_allclose(variance, wide.var(axes(shape)), rtol=10 * tolerance)


@pytest.mark.parametrize("shape", [(500, 3), (50, 3, 40), (60, 2, 5)])
def test_variances_beside_a_large_mean(shape, executor):
    x = (np.random.default_rng(1).standard_normal(shape) + 1e4).astype(np.float32)
    _, variance = family.statistics(x, CPU)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(axes(shape)), rtol=1e-4)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_running_figures_follow(name, executor):
    d, x = dt.BY_NAME[name].numpy, normal((9, 4, 5)).astype(np.float32)
    mean, variance = normal(4).astype(d), rng.random(4).astype(d)
    wanted = [
        0.75 * old.astype(np.float64) + 0.25 * now
        for old, now in ((mean, x.mean((0, 2))), (variance, x.var((0, 2), ddof=1)))
    ]
    family.statistics(x, CPU, mean, variance, 0.25)
    for found, now in zip((mean, variance), wanted, strict=True):
        rtol = 1e-5 if name == "float32" else 1e-2
        np.testing.assert_allclose(found.astype(np.float64), now, rtol=rtol, atol=1e-6)
    before = mean.copy()
    family.statistics(x, CPU, None, variance, 0.25)
    np.testing.assert_array_equal(mean, before)


def test_not_a_number_stays_in_its_channel(executor):
    x = normal((40, 2, 40)).astype(np.float32)
    x[3, 1, 7] = np.nan
    mean, variance = family.statistics(x, CPU)
    assert np.isnan([mean, variance]).tolist() == [[False, True]] * 2


def launched(function):
    with lucid_gpu.profiler.record() as log:
        function()
    return [(k.name, k.bytes_read, k.bytes_written) for k in log.kernels]


@pytest.fixture
def lazy():
    with eager(False):
        yield


def test_kernels_and_bytes(monkeypatch, lazy):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    x = lucid_gpu.randn(4, 3, 8, 8, requires_grad=True)
    weight, bias = [lucid_gpu.ones(3, requires_grad=True) for _ in "12"]
    running = [lucid_gpu.zeros(3), lucid_gpu.ones(3)]
    g = lucid_gpu.randn(4, 3, 8, 8)
    for t in (x, weight, bias, g, *running):
        assert t.array is not None
    size = 4 * 3 * 8 * 8 * 4

    def forward():
        return F.batch_norm(x, *running, weight, bias, training=True)

    two_reads = (3 * 3 + 3) * 4  # parts of one share, first elements
    one, two = launched(forward)  # x is read once; the rest fuses with what follows
    assert one[:2] == ("lucid_batch_norm_rows_float32_float32", size)
    assert two[:2] == ("lucid_batch_norm_finish_float32_float32_float32_float32", two_reads)
    y = forward()
    (last,) = launched(lambda: y.detach().relu().numpy())
    assert (last[1] - size < 200, last[2]) == (True, size)

    def backward(y):
        found = launched(lambda: lucid_gpu.autograd.grad(y, [x, weight, bias], g)[0].numpy())
        return [k for k in found if k[1] >= size]

    sums, gradient = backward(forward())
    assert sums[1] - 2 * size < 200  # x and g, once for both sums
    assert sums[2] <= 3 * 2 * 4
    assert (gradient[1] - 2 * size < 200, gradient[2]) == (True, size)
    sums, gradient = backward(forward().tanh())  # a gradient that arrives pending is not stored
    assert sums[1] - 2 * size < 200
    assert (gradient[1] - 2 * size < 200, gradient[2]) == (True, size)


# --- the op ---------------------------------------------------------------------------------------

INPUTS = [normal((6, 3)), normal((4, 3, 5)), normal((4, 3, 2, 2)), normal((2, 4, 3, 5)).T]


@pytest.mark.each_value
@pytest.mark.parametrize("affine", ["weight and bias", "weight", "bias", "neither"])
@pytest.mark.parametrize("x", INPUTS)
def test_agrees_with_torch(x, affine, device):
    c = x.shape[1]

    def normalized(m, x, w, b):
        weight, bias = w if "weight" in affine else None, b if "bias" in affine else None
        y = m.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
        return y.relu() * x + w.sum() + b.sum()

    order = 1 if affine == "bias" else 2  # where torch's own second gradient fails
    agree(normalized, x, normal(c), normal(c), device=device, order=order)


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
@pytest.mark.parametrize("training", [True, False])
def test_halves_beside_float32_figures(d, training, device):
    torch = torch_module()
    x, w = normal((40, 3, 5)).astype(np.float32), normal(3).astype(np.float32)
    found = []
    for m, where in ((lucid_gpu, device), (torch, "cpu")):
        t = m.tensor(x.tolist(), device=where).to(getattr(m, d)).requires_grad_()
        weight = m.tensor(w.tolist(), device=where, requires_grad=True)
        mean, variance = m.zeros(3, device=where), m.ones(3, device=where)
        y = m.nn.functional.batch_norm(t, mean, variance, weight, training=training)
        (y * y).float().sum().backward()
        assert str(y.dtype).endswith(d)
        found.append([np.asarray(v.float().tolist()) for v in (y, t.grad, weight.grad, variance)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.03, atol=0.03)


def test_running_figures_are_torchs(device):
    def run(m, x):
        where = x.device
        whole = m.zeros(3, 2, device=where, dtype=x.dtype)
        mean, variance = whole[:, 0], m.ones(3, device=where, dtype=x.dtype)  # one with strides
        for _ in range(3):
            x = m.nn.functional.batch_norm(x * 2, mean, variance, training=True, momentum=0.2)
        return mean.clone(), variance.clone(), whole

    agree(run, normal((5, 3, 4)), device=device)


def test_a_running_figure_may_change_between_forward_and_backward(device):
    x = lucid_gpu.randn(6, 3, device=device, requires_grad=True)
    mean, variance = lucid_gpu.zeros(3, device=device), lucid_gpu.ones(3, device=device)
    version = mean._version
    y = F.batch_norm(x, mean, variance, training=True)
    assert mean._version > version
    F.batch_norm(x, mean, variance, training=True)
    y.sum().backward()
    assert x.grad.abs().max().item() < 1e-5


@pytest.mark.parametrize("executor", slow_but(["numpy", "cuda c"], "numpy"), indirect=True)
@pytest.mark.parametrize("shape", [(5, 2), (3, 2, 4)])
def test_first_and_second_gradients(shape, executor):
    x, w, b = [lucid_gpu.tensor(normal(s), requires_grad=True) for s in (shape, 2, 2)]

    def function(x, w, b):
        return F.batch_norm(x, None, None, w, b, training=True).tanh()

    assert gradcheck(function, (x, w, b), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, (x, w, b))
    assert gradcheck(lambda x, b: F.batch_norm(x.mT, None, None, None, b, True), (x.mT, b))


def test_batches(device):
    x = lucid_gpu.tensor(normal((4, 5, 3, 2)), device=device)
    w = lucid_gpu.tensor(normal((4, 3)), device=device)
    found = vmap(lambda x, w: F.batch_norm(x, None, None, w, training=True))(x, w)
    each = [F.batch_norm(x[i], None, None, w[i], training=True) for i in range(4)]
    lucid_gpu.testing.assert_close(found, lucid_gpu.stack(each))


def test_inside_a_function_and_under_saved_tensor_hooks(device):
    class Normalize(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return F.batch_norm(x, None, None, training=True)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with lucid_gpu.enable_grad():
                x = x.detach().requires_grad_()
                y = F.batch_norm(x, None, None, training=True)
                return lucid_gpu.autograd.grad(y, x, g)[0]

    x = lucid_gpu.randn(5, 3, device=device, requires_grad=True)
    weights = lucid_gpu.randn(5, 3, device=device)

    def gradient(function):
        return lucid_gpu.autograd.grad((function(x) * weights).sum(), x)[0]

    plain = gradient(lambda x: F.batch_norm(x, None, None, training=True))
    lucid_gpu.testing.assert_close(gradient(Normalize.apply), plain)
    seen = []
    with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        hooked = gradient(lambda x: F.batch_norm(x, None, None, training=True))
    lucid_gpu.testing.assert_close(hooked, plain)
    assert seen


def test_nothing_and_misuse(device):
    empty = lucid_gpu.zeros(0, 3, device=device, requires_grad=True)
    y = F.batch_norm(empty, None, None, training=True)
    assert tuple(y.shape) == (0, 3)
    same_error(
        lambda m: m.nn.functional.batch_norm(m.zeros(1, 3), None, None, training=True),
        "Expected more than 1 value per channel when training",
    )
    figures = lucid_gpu.zeros(3, device=device)
    with pytest.raises(ValueError, match="more than 1 value"):
        F.batch_norm(lucid_gpu.ones(1, 3, device=device), figures, figures, training=True)
    assert (figures.tolist(), figures._version) == ([0, 0, 0], 0)
