"""Functions at infinities, NaN and zeros of both signs: the tables in the standard's text.

Real numbers' are array-api-strict's (`test_values`), and so are C99's for complex ones, except
where the standard says otherwise. The whole is one kernel.
"""

import numpy
import pytest

import lucid_gpu.array_api as xp
from lucid_gpu.fusion.realize import realize

strict = pytest.importorskip("array_api_strict", reason="`pip install array-api-strict`")

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, numpy.inf, -numpy.inf, numpy.nan]
POINTS = numpy.array([complex(a, b) for a in PARTS for b in PARTS])
FUNCTIONS = "abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 isfinite isinf isnan log "
FUNCTIONS += "log10 log1p log2 negative positive sign sin sinh sqrt square tan tanh"


def wanted(name, points):
    if name == "expm1":  # NumPy's has NaN where the standard has exp(x) - 1
        whole = numpy.isfinite(points)
        return numpy.where(whole, numpy.expm1(points), numpy.exp(points) - 1)
    return numpy.asarray(getattr(strict, name)(strict.asarray(points))._array)


@pytest.mark.filterwarnings("ignore")  # NumPy's, of invalid values
@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_numbers(kind, device):
    points = POINTS.astype(kind)
    x = xp.asarray(points, device=device)
    found = realize([getattr(xp, name)(x)._expr for name in FUNCTIONS.split()])
    for name, result in zip(FUNCTIONS.split(), found, strict=True):
        result = result.get() if hasattr(result, "get") else result
        agree(name, points, result, wanted(name, points))


def agree(name, points, found, wanted):
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind != "c":
        numpy.testing.assert_array_equal(found, wanted, name) if wanted.dtype == bool else (
            numpy.testing.assert_allclose(found, wanted, 1e-6, 0, err_msg=name)
        )
        return
    close = 1e-5 if wanted.dtype == "c8" else 1e-12
    for part, other in ("real", "imag"), ("imag", "real"):
        f, w, beside = getattr(found, part), getattr(wanted, part), getattr(wanted, other)
        # C99 leaves signs open where the other part is NaN; the standard leaves those of sign(0)
        signed = ~numpy.isnan(w) & ~numpy.isnan(beside) & (name != "sign")
        numpy.testing.assert_allclose(abs(f), abs(w), close, close, err_msg=f"{name}, {part}")
        wrong = signed & (numpy.signbit(f) != numpy.signbit(w))
        wrong &= (abs(w) > close) | (w == 0)
        assert not wrong.any(), (name, part, points[wrong], found[wrong], wanted[wrong])


def _quotient(a, b):
    """The standard's table of `floor_divide`."""
    infinite = abs(a) == numpy.inf
    if a != a or b != b or (infinite and abs(b) == numpy.inf) or (a == 0 and b == 0):
        return numpy.nan
    sign = numpy.copysign(1.0, a) * numpy.copysign(1.0, b)
    if infinite or b == 0:
        return sign * numpy.inf
    if abs(b) == numpy.inf and a != 0:
        return -1.0 if sign < 0 else 0.0
    return sign * 0.0 if a == 0 else numpy.floor(a / b)


def _rest(a, b):
    """The standard's table of `remainder`."""
    if a != a or b != b or abs(a) == numpy.inf or b == 0:
        return numpy.nan
    if abs(b) == numpy.inf and a != 0:
        return a if numpy.copysign(1.0, a) == numpy.copysign(1.0, b) else b
    return numpy.copysign(abs(numpy.remainder(a, b)), b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "table"), [("floor_divide", _quotient), ("remainder", _rest)])
def test_quotients_and_rests_of_zeros_and_infinities(name, table, dtype, device):
    values = [-numpy.inf, -2.5, -1.0, -0.0, 0.0, 1.0, 2.5, numpy.inf, numpy.nan]
    a, b = (v.reshape(-1) for v in numpy.meshgrid(values, values))
    right = numpy.array([table(*pair) for pair in zip(a, b, strict=True)])
    kind = getattr(xp, dtype)
    x, y = (xp.asarray(v, dtype=kind, device=device) for v in (a, b))
    got = getattr(xp, name)(x, y).cpu().numpy()
    numpy.testing.assert_array_equal(got, right)
    zeros = right == 0
    numpy.testing.assert_array_equal(numpy.signbit(got[zeros]), numpy.signbit(right[zeros]))
    for number in values:  # as the first operand
        chosen = (a == number) | ((a != a) & (number != number))
        beside = getattr(xp, name)(number, y[xp.asarray(chosen, device=device)]).cpu()
        numpy.testing.assert_array_equal(beside, right[chosen])


def test_grids_and_broadcast_arrays_are_lists():
    x, y = xp.asarray([1.0, 2.0]), xp.asarray([1.0, 2.0, 3.0])
    assert type(xp.meshgrid(x, y)) is list
    assert type(xp.broadcast_arrays(x, x)) is list
