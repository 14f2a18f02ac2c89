"""Writes into tensors, polynomials, functions along axes: NumPy's values, and gradients."""

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import as_tensor, gradients_by_differences, numbers, plain, same_values

X, V, W, SQUARE = numbers(3, 4), numbers(4), numbers(3, seed=2), numbers(4, 4)
MASK = X > 0.1
RISING = numpy.array([0.0, 1.0, 1.5, 4.0, 5.0])


def written(write):
    """The write, into a copy that is given back."""

    def call(m, a, *rest):
        copied = m.copy(a) * 1
        write(m, copied, *rest)
        return copied

    return call


WRITES = [
    ("copyto", lambda m, a, b: m.copyto(a, b), (X, V)),
    ("copyto where", lambda m, a, b: m.copyto(a, b, where=MASK), (X, V)),
    ("place", lambda m, a, b: m.place(a, MASK, b), (X, W)),
    ("put", lambda m, a, b: m.put(a, [0, -1, 5], b), (X, W)),
    ("put wrapped", lambda m, a, b: m.put(a, [20, 1], b, mode="wrap"), (X, W)),
    ("putmask", lambda m, a, b: m.putmask(a, MASK, b), (X, W)),
    (
        "put_along_axis",
        lambda m, a, b: m.put_along_axis(a, MASK[:1] * 1, b[:1, :4], 0),
        (X, SQUARE),
    ),
    ("put twice at a place", lambda m, a, b: m.put(a, [1, 1, 4, 1], b), (X, V)),
    ("fill_diagonal", lambda m, a, b: m.fill_diagonal(a, b), (SQUARE, V)),
]
CASES = [
    *[(name, written(write), arrays) for name, write, arrays in WRITES],
    ("poly", lambda m, r: m.poly(r), (V,)),
    ("polyadd", lambda m, p, q: m.polyadd(p, q), (V, W)),
    ("polysub", lambda m, p, q: m.polysub(p, q), (W, V)),
    ("polymul", lambda m, p, q: m.polymul(p, q), (V, W)),
    ("polydiv", lambda m, p, q: m.polydiv(p, q), (V, W)),
    ("polyder", lambda m, p: m.polyder(p, 2), (V,)),
    ("polyint", lambda m, p: m.polyint(p, 2, [1.0, 2.0]), (V,)),
    ("polyfit", lambda m, x, y: m.polyfit(x, y, 2), (RISING, numbers(5))),
    ("polyfit weighted", lambda m, y, w: m.polyfit(RISING, y, 1, w=w + 2), (numbers(5, 2), RISING)),
    ("apply_along_axis", lambda m, x: m.apply_along_axis(m.cumsum, 0, x), (X,)),
    ("apply_along_axis to numbers", lambda m, x: m.apply_along_axis(m.prod, 1, x), (X,)),
    ("apply_over_axes", lambda m, x: m.apply_over_axes(m.sum, x, [0, 1]), (X,)),
    ("trim_zeros", lambda m, x: m.trim_zeros(m.where(x > 0.5, x, 0.0)), (V,)),
    ("sort of complex", lambda m, x, y: m.real(m.sort_complex(x + 1j * y)), (V, V * V)),
    ("i0", lambda m, x: m.i0(x), (X,)),
]
VALUES = [
    ("roots", lambda m, p: m.sort_complex(m.roots(p) + 0j), (V,)),
    ("ix_", lambda m, k: m.ix_(k, [True, False, True]), (numpy.array([2, 0]),)),
    ("tril_indices_from", lambda m, x: m.tril_indices_from(x, 1), (X,)),
    ("diag_indices_from", lambda m, x: m.diag_indices_from(x), (SQUARE,)),
    ("sum of a number", lambda m, x: m.sum(x, axis=0), (numbers(),)),
    ("cumsum of a number", lambda m, x: m.cumsum(x, axis=-1), (numbers(),)),
    ("sum from elsewhere", lambda m, k: m.sum(k, initial=2.5), (numpy.array([2, 0]),)),
    ("mean over no axes", lambda m, x: m.nanmean(x, axis=()), (X,)),
    ("reciprocal of whole numbers", lambda m, k: m.reciprocal(k), (numpy.array([2, -3, 1]),)),
    ("round of whole numbers", lambda m, k: m.round(k, -1), (numpy.array([24, -37, 15]),)),
    ("fix of truth", lambda m, x: m.fix(x), (MASK,)),
    ("trapezoid of nothing", lambda m, x: m.trapezoid(x[:0], axis=0), (X,)),
    ("min from elsewhere", lambda m, k: m.min(k, initial=2.5, where=k > 2), (numpy.array([2, 4]),)),
    ("corrcoef of complex", lambda m, x: m.corrcoef(x * 1j + x[0]), (X,)),
    ("resize of nothing", lambda m, x: m.resize(x[:0], (2, 3)), (X,)),
    ("roll twice", lambda m, x: m.roll(x, (1, 2), axis=-1), (X,)),
    ("roll by two", lambda m, x: m.roll(x, (1, 2)), (X,)),
    ("in another type", lambda m, x: m.add(x, x, dtype="f8"), (X.astype("f2"),)),
    ("arccos in complex", lambda m, x: m.arccos(x, dtype="c16"), (X * 3,)),
    ("a scalar of NumPy", lambda m, x: m.arctan2(x, numpy.float64(2)), (X.astype("f4"),)),
    ("matmul of two types", lambda m, x, y: m.matmul(x, y), (X, V.astype("f4"))),
    ("tril of a vector", lambda m, x: m.tril(x), (V,)),
    ("cov of float32", lambda m, x: m.cov(x), (X.astype("f4"),)),
    ("median of nothing", lambda m, x: m.median(x[:, :0], axis=0), (X,)),
    ("rfft of float32", lambda m, x: m.fft.rfft(x), (V.astype("f4"),)),
    ("floor of truth", lambda m, x: m.floor(x), (MASK,)),
    ("sign of complex", lambda m, x: m.sign(x * (1 + 1j)), (X,)),
]


# of functions that CuPy has and its stand-in has not
ON_THE_HOST = [
    ("unique", lambda m, x: m.unique(x, return_counts=True), (numpy.array([2, 0, 2]),)),
    ("ravel_multi_index", lambda m, k: m.ravel_multi_index((k, k), (3, 3)), (numpy.array([2, 0]),)),
]


def rows(cases):
    return pytest.mark.parametrize(
        ("call", "arrays"), [c[1:] for c in cases], ids=[c[0] for c in cases]
    )


@rows(CASES[::2] + VALUES)
def test_values(call, arrays, device):
    same_values(call, arrays, device)


@rows(CASES[1::2] + ON_THE_HOST)
def test_values_on_the_cpu(call, arrays):
    same_values(call, arrays, "cpu")


@rows(CASES)
def test_gradients(call, arrays):
    gradients_by_differences(call, arrays, "cpu")


def test_types_are_numpys():
    x, k = lucid_gpu.ones(2), lucid_gpu.ones(2, dtype=lucid_gpu.int64)
    assert np.result_type(x, k) == numpy.float64
    assert np.common_type(x) is numpy.float32
    assert np.can_cast(k, "f8") is True
    assert np.min_scalar_type(k) == numpy.int64
    assert np.einsum_path("i,i", x, k)[0] == ["einsum_path", (0, 1)]


def test_arrays_take_values_and_lose_no_gradient():
    a, x = numpy.zeros(3), lucid_gpu.ones(3, dtype=lucid_gpu.float64)
    np.copyto(a, x)
    assert a.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"numpy.copyto would write .* keeps no gradient"):
        np.copyto(a, x.requires_grad_())
    with pytest.raises(RuntimeError, match="leaf"):
        np.fill_diagonal(lucid_gpu.ones(2, 2, requires_grad=True), 0.0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: np.place(x, x > 0, numpy.ones(2)), TypeError, "rule 'safe'"),
        (lambda x: np.putmask(x, [True], 1.0), ValueError, "same size"),
        (lambda x: np.put(x, 99, 1.0), IndexError, "out of bounds"),
        (lambda x: np.polyfit(V, x[0], 1, full=True), TypeError, "without full and cov"),
        (lambda x: np.polyder(x[0], -1), ValueError, "must be positive"),
        (lambda x: np.apply_along_axis(np.sum, 0, x[:, :0]), ValueError, "dimensions are 0"),
        (lambda x: np.max(x[:0]), ValueError, "which has no identity"),
        (lambda x: np.vecdot(x, x[:, :2]), ValueError, "mismatch"),
        (lambda x: np.fft.fft(x, 0), ValueError, "data points"),
        (lambda x: np.bitwise_count(x), TypeError, "bitwise_count"),
        (lambda x: np.degrees(x * 1j), TypeError, "degrees"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(as_tensor(X.astype("f4"), "cpu"))


def test_weak_numbers_stay_weak():
    x = lucid_gpu.ones(2)
    assert np.select([plain(x) > 0], [x], 1.5).dtype == lucid_gpu.float32


def test_elements_alike_have_a_spread_without_slope():
    slope = np.grad(lambda x: np.std(x) + np.nanstd(x[:1]))
    assert slope(numpy.ones(3)).tolist() == [0, 0, 0]
