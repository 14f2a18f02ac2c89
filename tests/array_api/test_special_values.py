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
