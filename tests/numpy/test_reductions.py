"""Sums, means and extrema: NumPy's values and types, HIPS autograd's gradients."""

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import as_tensor, numbers, same_gradients, same_values

X, M = numbers(3, 4), numbers(2, 3, 4)

CASES = [
    ("sum", lambda m, x: m.sum(x), (M,)),
    ("sum of an axis", lambda m, x: m.sum(x, axis=1), (M,)),
    ("sum of axes", lambda m, x: m.sum(x, axis=(0, -1), keepdims=True), (M,)),
    ("sum in another type", lambda m, x: m.sum(x, 0, "float32"), (X.astype("f4"),)),
    ("prod", lambda m, x: m.prod(x), (X,)),
    ("prod of an axis", lambda m, x: m.prod(x, axis=1), (X,)),
    ("mean", lambda m, x: m.mean(x, axis=(0, 2)), (M,)),
    ("var", lambda m, x: m.var(x, axis=0), (X,)),
    ("var of equal elements", lambda m, x: m.var(x, axis=1) * m.sum(x), (numpy.ones((2, 3)),)),
    ("var, one less", lambda m, x: m.var(x, axis=1, ddof=1, keepdims=True), (X,)),
    ("std", lambda m, x: m.std(x, axis=0, ddof=1), (X,)),
    ("std of all", lambda m, x: m.std(x), (X,)),
    ("max", lambda m, x: m.max(x), (X,)),
    ("amax", lambda m, x: m.amax(x, axis=1), (X,)),
    ("min", lambda m, x: m.min(x, axis=0, keepdims=True), (X,)),
    ("amin", lambda m, x: m.amin(x, axis=(0, 1)), (M,)),
    ("of a number", lambda m, x: m.sum(x) + m.mean(x), (numbers(),)),
    ("of a transposed", lambda m, x: m.sum(x.T, axis=0), (X,)),
]
ONLY_VALUES = [
    ("ptp", lambda m, x: m.ptp(x, axis=0), (X,)),
    ("sum from", lambda m, x: m.sum(x, axis=0, initial=2.0), (X,)),
    ("sum where", lambda m, x: m.sum(x, axis=0, where=numpy.arange(4) > 1), (X,)),
    ("mean where", lambda m, x: m.mean(x, axis=1, where=numpy.arange(4) > 1), (X,)),
    ("var where", lambda m, x: m.var(x, axis=1, where=numpy.arange(4) > 1), (X,)),
    ("max where", lambda m, x: m.max(x, axis=1, where=numpy.arange(4) > 1, initial=-3), (X,)),
    ("max of none, from", lambda m, x: m.max(x[:0], axis=0, initial=1.0), (X,)),
    ("mean of whole", lambda m, x: m.mean(x), (numpy.arange(4),)),
    ("std of whole", lambda m, x: m.std(x), (numpy.arange(4),)),
    ("sum of bytes", lambda m, x: m.sum(x), (numpy.arange(4, dtype="i1"),)),
    ("sum of truths", lambda m, x: m.sum(x > 0, axis=0), (X,)),
    ("average", lambda m, x, w: m.average(x, axis=0, weights=w), (X, numbers(3, low=1, high=2))),
    ("averages", lambda m, x: m.average(x, axis=1, returned=True), (X,)),
    ("all", lambda m, x: m.all(x > 0, axis=1), (X,)),
    ("any", lambda m, x: m.any(x > 0, axis=0, keepdims=True), (X,)),
    ("of nothing", lambda m, x: m.sum(x, axis=0), (numpy.zeros((0, 2)),)),
    ("no axis", lambda m, x: m.sum(x, axis=()), (X,)),
    ("reduce", lambda m, x: numpy.add.reduce(x), (X,)),
    ("reduce all", lambda m, x: numpy.multiply.reduce(x, axis=None), (X,)),
    ("maximum.reduce", lambda m, x: numpy.maximum.reduce(x, axis=1, keepdims=True), (X,)),
]


@pytest.mark.parametrize(
    ("name", "call", "arrays"), CASES + ONLY_VALUES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_values(name, call, arrays, device):
    same_values(call, arrays, device)


@pytest.mark.parametrize(
    ("name", "call", "arrays"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_gradients(name, call, arrays):
    same_gradients(call, arrays, "cpu")


@pytest.mark.parametrize(
    ("name", "call", "arrays"), CASES[::3], ids=lambda v: v if isinstance(v, str) else ""
)
def test_gradients_elsewhere(name, call, arrays, device):
    same_gradients(call, arrays, device, order=1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: np.sum(x, axis=3), numpy.exceptions.AxisError, "axis 3 is out of bounds"),
        (lambda x: np.sum(x, axis=(0, 0)), ValueError, "repeated axis"),
        (lambda x: np.sum(x, axes=0), TypeError, "axes"),
        (lambda x: np.max(x, where=x > 0), ValueError, "'maximum' does not have an identity"),
        (lambda x: np.average(x, weights=np.ones(3)), TypeError, "Axis must be specified"),
        (lambda x: np.sum(x, out=numpy.zeros(())), RuntimeError, "requires grad"),
        (lambda x: np.sum(x.detach(), out=numpy.zeros(2)), ValueError, r"shape \(2,\)"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(lucid_gpu.tensor(X, requires_grad=True))


def test_out(device):
    x = as_tensor(X, device)
    out = lucid_gpu.zeros(4, dtype=lucid_gpu.float64, device=device)
    assert np.sum(x, 0, None, out) is out
    numpy.testing.assert_allclose(out.cpu().numpy(), X.sum(0))


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_a_small_type_that_is_asked_for(name, device):
    x = numpy.asarray([[100, 100], [3, 3]], "i4")
    same_values(lambda m, x: getattr(m, name)(x, axis=0, dtype="i1"), (x,), device)
