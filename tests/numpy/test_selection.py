"""Selections, running sums, statistics, sequences: NumPy's values, HIPS autograd's gradients."""

import warnings
from itertools import product

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import (
    gradients_by_differences,
    named,
    numbers,
    same_gradients,
    same_values,
    since_2_1,
)

X, Y, V, M = numbers(3, 4), numbers(3, 4, seed=1), numbers(4), numbers(2, 3, 4)
HOLES = numpy.where(numbers(3, 4, seed=5) > 0.4, numpy.nan, X)
ORDER = numpy.array([2, 0, 1, 1])
RISING = numpy.array([0.0, 1.0, 1.5, 4.0])

CASES = [
    ("where", lambda m, x, y: m.where(x > y, x, y), (X, Y)),
    ("where of a number", lambda m, x: m.where(x > 0, x, 2.0), (X,)),
    ("select", lambda m, x: m.select([x > 0.5, x > 0], [x * 2, -x], default=1.0), (X,)),
    ("clip", lambda m, x: m.clip(x, -0.5, 0.4), (X,)),
    ("sort", lambda m, x: m.sort(x), (V,)),
    # In what order the smaller ones come depends on the processor.
    ("partition", lambda m, x: m.sort(m.partition(x, 2)[:3]), (V,)),
    ("diff", lambda m, x: m.diff(x), (X,)),
    ("second diff", lambda m, x: m.diff(x, n=2, axis=0), (X,)),
    ("real", lambda m, x: m.real(x * (1 + 2j)), (X,)),
    ("imag", lambda m, x: m.imag(x * (1 + 2j)), (X,)),
    ("nan_to_num", lambda m, x: m.nan_to_num(x), (X,)),
    ("sinc", lambda m, x: m.sinc(x), (X,)),
    ("cumsum", lambda m, x: m.cumsum(x), (X,)),
    ("cumsum of an axis", lambda m, x: m.cumsum(x, axis=1), (X,)),
    ("trace", lambda m, x: m.trace(x, 1), (X,)),
    ("gradient", lambda m, x: m.gradient(x, axis=1), (X,)),
    ("linspace", lambda m, x, y: m.linspace(x, y, 5), (numbers(), numbers() + 2)),
    ("indexing", lambda m, x: x[1:, ::-1] * x[0, 2] + x[[2, 0]][:, :4], (X,)),
]
ALONE = [
    ("choose", lambda m, x, y: m.choose(numpy.array([0, 1, 1, 0]), [x, y]), (X, Y)),
    (
        "piecewise",
        lambda m, x: m.piecewise(x, [x < 0, x > 0.5], [lambda t: -t, 1.0, lambda t: t**2]),
        (X,),
    ),
    ("take", lambda m, x: m.take(x, ORDER, axis=0), (X,)),
    ("take flat", lambda m, x: m.take(x, [[1, -2]]), (X,)),
    ("take wrapped", lambda m, x: m.take(x, [7, -9], axis=1, mode="wrap"), (X,)),
    ("take clipped", lambda m, x: m.take(x, [7, -9], axis=1, mode="clip"), (X,)),
    ("take_along_axis", lambda m, x: m.take_along_axis(x, ORDER[None], axis=0), (X,)),
    ("compress", lambda m, x: m.compress([True, False, True], x, axis=0), (X,)),
    ("extract", lambda m, x: m.extract(x > 0, x), (X,)),
    ("sort flat", lambda m, x: m.sort(x, axis=None), (X,)),
    ("ediff1d", lambda m, x: m.ediff1d(x, to_begin=1.0, to_end=[2.0, 3.0]), (V,)),
    ("diff with edges", lambda m, x: m.diff(x, axis=1, prepend=0.0), (X,)),
    ("unwrap", lambda m, x: m.unwrap(x * 9), (X,)),
    ("interp", lambda m, x, xp, fp: m.interp(x, xp, fp), (X * 4, RISING, V)),
    (
        "interp with edges",
        lambda m, x, fp: m.interp(x, RISING, fp, left=-1.0, right=2.0),
        (X * 4, V),
    ),
    ("interp of a period", lambda m, x, fp: m.interp(x, RISING, fp, period=5.0), (X * 9, V)),
    ("angle", lambda m, x, y: m.angle(x + 1j * y, deg=True), (X, Y)),
    ("fix", lambda m, x: m.fix(x * 3), (X,)),
    ("round", lambda m, x: m.round(x, 1) + x, (X,)),
    ("cumprod", lambda m, x: m.cumprod(x, axis=0), (X,)),
    ("cumulative_sum", lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True), (X,)),
    ("cumulative_prod", lambda m, x: m.cumulative_prod(x), (V,)),
    ("median", lambda m, x: m.median(x), (X,)),
    ("median of axes", lambda m, x: m.median(x, axis=(0, 2), keepdims=True), (M,)),
    ("quantile", lambda m, x: m.quantile(x, [0.2, 0.9], axis=1), (X,)),
    ("percentile", lambda m, x: m.percentile(x, 30, axis=0, method="lower"), (X,)),
    ("cov", lambda m, x: m.cov(x), (X,)),
    ("cov of two", lambda m, x, y: m.cov(x, y, ddof=0), (X, Y)),
    ("corrcoef", lambda m, x: m.corrcoef(x), (X,)),
    ("trapezoid", lambda m, y: m.trapezoid(y, dx=0.5), (X,)),
    ("trapezoid at places", lambda m, y, x: m.trapezoid(y, x, axis=1), (X, RISING)),
    ("gradient at places", lambda m, y, x: m.gradient(y, x, axis=1, edge_order=2), (X, RISING)),
    ("logspace", lambda m, x: m.logspace(x, 1.0, 4), (numbers(),)),
    ("geomspace", lambda m, x: m.geomspace(x + 3, 9.0, 4), (numbers(),)),
    ("linspace of rows", lambda m, x: m.linspace(x, 2 * x, 3, endpoint=False, axis=-1), (V,)),
    ("indexing by a mask", lambda m, x: x[x > 0] * 2, (X,)),
    ("of a number", lambda m, x: m.cumsum(x) + m.median(x), (numbers(),)),
    ("of every second", lambda m, x: m.sort(x[:, ::2], axis=0), (X,)),
]
NAN = [
    ("nansum", lambda m, x: m.nansum(x, axis=0), (HOLES,)),
    ("nanprod", lambda m, x: m.nanprod(x), (HOLES,)),
    ("nanmean", lambda m, x: m.nanmean(x, axis=1, keepdims=True), (HOLES,)),
    ("nanvar", lambda m, x: m.nanvar(x, axis=1), (HOLES,)),
    ("nanstd", lambda m, x: m.nanstd(x), (HOLES,)),
    ("nanmax", lambda m, x: m.nanmax(x, axis=0), (HOLES,)),
    ("nanmin", lambda m, x: m.nanmin(x), (HOLES,)),
    ("nancumsum", lambda m, x: m.nancumsum(x, axis=1), (HOLES,)),
    ("nancumprod", lambda m, x: m.nancumprod(x), (HOLES,)),
    ("nanmedian", lambda m, x: m.nanmedian(x, axis=0), (HOLES,)),
    ("nanquantile", lambda m, x: m.nanquantile(x, 0.3), (HOLES,)),
    ("nanpercentile", lambda m, x: m.nanpercentile(x, [20, 40], axis=0), (HOLES,)),
]
# no derivative: the array library computes
VALUES = [
    ("argmax", lambda m, x: m.argmax(x, axis=1), (X,)),
    ("argsort", lambda m, x: m.argsort(x, axis=0), (X,)),
    ("nonzero", lambda m, x: m.nonzero(x > 0), (X,)),
    ("searchsorted", lambda m, x, v: m.searchsorted(x, v), (RISING, X)),
    ("isclose", lambda m, x: m.isclose(x, x + 1e-12), (X,)),
    ("digitize", lambda m, x: m.digitize(x, RISING), (X,)),
    ("count_nonzero", lambda m, x: m.count_nonzero(x > 0, axis=0), (X,)),
    ("bincount", lambda m, x: m.bincount(x), (ORDER,)),
]


@named(CASES + ALONE + NAN + VALUES)
def test_values(call, arrays, device):
    same_values(call, arrays, device)


@named(CASES)
def test_gradients(call, arrays):
    same_gradients(call, arrays, "cpu")


@named(ALONE)
def test_gradients_by_differences(call, arrays):
    gradients_by_differences(call, arrays, "cpu")


@named(CASES[::3])
def test_gradients_elsewhere(call, arrays, device):
    same_gradients(call, arrays, device, order=1)


@named(ALONE[::3])
def test_more_gradients_elsewhere(call, arrays, device):
    gradients_by_differences(call, arrays, device)


@named(NAN)
def test_gradients_past_nan(call, arrays):
    """Where a NaN stands nothing is moved; elsewhere it is as if it were not there."""
    t = lucid_gpu.tensor(HOLES, requires_grad=True)
    call(np, t).sum().backward()
    assert not bool(t.grad.isnan().any())
    assert not numpy.asarray(t.grad)[numpy.isnan(HOLES)].any()


def test_plain_answers(device):
    x = lucid_gpu.tensor(X, device=device)
    assert np.allclose(x, x + 1e-12) is True
    assert np.array_equal(x, x) is True
    np.put_along_axis(x, ORDER[None, :4], 0.0, axis=0)
    assert float(x[2, 0]) == 0.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: np.take(x, 5, axis=0), IndexError, "out of bounds for axis with size 3"),
        (lambda x: np.quantile(x, 1.5), ValueError, r"Quantiles must be in the range \[0, 1\]"),
        (lambda x: np.quantile(x, 0.5, method="weibull"), TypeError, "numpy.quantile of tensors"),
        (lambda x: np.interp(x, RISING, V[:2]), ValueError, "same length"),
        (lambda x: np.where(x > 0, x), ValueError, "neither"),
        (lambda x: np.select([x > 0], [x, x]), ValueError, "same length"),
        (lambda x: np.gradient(x, 1.0, 2.0, 3.0), TypeError, "number of arguments"),
        pytest.param(lambda x: np.cumulative_sum(x), ValueError, "requires axis=", marks=since_2_1),
        (lambda x: np.sort(x, order="f"), TypeError, "structured"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(lucid_gpu.tensor(X))


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("kind", ["float32", "complex64", "int64"])
def test_gradient_over_complex_steps_is_numpys(kind, edge_order):
    x = (X * 4).astype(kind)
    steps = numpy.array([0.5, 1 + 2j, 3 - 1j, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", numpy.exceptions.ComplexWarning)
        wanted = numpy.gradient(x, steps, axis=1, edge_order=edge_order)
    found = numpy.gradient(lucid_gpu.tensor(x), steps, axis=1, edge_order=edge_order)
    assert found.dtype.numpy == wanted.dtype
    numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=1e-5)


def test_what_numpy_makes_of_tensors_comes_from_numpy(device):
    x = lucid_gpu.ones(2, requires_grad=True)
    lucid_gpu.from_numpy(numpy.concatenate([x, x])).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


INDEX_PARTS = [
    3, -1, slice(2, None), slice(None, None, -1), slice(0, 3, 2), None, ..., [1, 3], [0, 0, 2],
    numpy.array([[0, 1], [2, 3]]), numpy.int64(2), numpy.array(2),
    numpy.array([True, False, True, False]), [True, False, True, True], True, numpy.True_,
    numpy.array([0, 1], numpy.uint8), numpy.array([1, 0], numpy.int8), [[0, 1], [1, 2]],
    numpy.ones((4, 4), bool), range(2), (1, 2),
]  # fmt: skip
THREE = [
    3,
    slice(2, None),
    None,
    ...,
    [1, 3],
    numpy.array(2),
    numpy.array([True, False, True, False]),
]


def _indices():
    single = [*INDEX_PARTS, *[(p,) for p in INDEX_PARTS]]
    return [*single, *product(INDEX_PARTS, repeat=2), *product(THREE, repeat=3)]


def test_indices_are_read_by_numpys_rules_inside_of_its_functions():
    """Ints count among the arrays, lists are arrays, and all whole types name positions."""
    x, rng = numpy.arange(80.0).reshape(5, 4, 4), numpy.random.default_rng(0)
    for index in _indices():
        try:
            selected = x[index]
        except IndexError:
            continue
        weights = rng.standard_normal(numpy.shape(selected))
        kept = []

        def read(a, index=index, weights=weights, kept=kept):
            kept.append(a[index])
            return np.sum(kept[-1] * weights)

        def write(a, index=index, weights=weights, kept=kept):
            b = a * 1.0
            b[index] = weights
            kept.append(b)
            return np.sum(b * b) / 2

        expected = numpy.zeros_like(x)
        numpy.add.at(expected, index, weights)
        numpy.testing.assert_allclose(np.grad(read)(x), expected, err_msg=str(index))
        numpy.testing.assert_array_equal(kept[-1].detach().numpy(), selected, str(index))
        second = np.grad(lambda a, read=read: np.sum(np.grad(read)(a) * a))(x)
        numpy.testing.assert_allclose(second, expected, err_msg=str(index))
        written, rest = x.copy(), x.copy()
        written[index], rest[index] = weights, 0.0
        numpy.testing.assert_allclose(np.grad(write)(x), rest, err_msg=str(index))
        numpy.testing.assert_array_equal(kept[-1].detach().numpy(), written, str(index))


def test_tensors_outside_of_them_are_read_by_pytorchs_rules():
    x = lucid_gpu.arange(80).reshape(5, 4, 4)
    np.grad(lambda a: np.sum(a[3, 2:, [1, 3]]))(numpy.ones((5, 4, 4)))
    assert x[3, 2:, [1, 3]].tolist() == [[57, 59], [61, 63]]
