"""NumPy's ufuncs: values and types of NumPy's loops, HIPS autograd's gradients."""

import numpy
import pytest
import scipy.special

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import (
    as_tensor,
    gradients_by_differences,
    numbers,
    plain,
    same_gradients,
    same_values,
    there,
)

X, Y = numbers(3, 4), numbers(4, seed=1)
P, Q = numbers(3, 4, low=0.2, high=2.0), numbers(3, 1, low=0.5, high=3.0, seed=2)
ABOVE = numbers(3, 4, low=1.2, high=3.0)

ONE = {
    "absolute": X, "arccos": X / 2, "arccosh": ABOVE, "arcsin": X / 2, "arcsinh": X, "arctan": X,
    "arctanh": X / 2, "conjugate": X, "cos": X, "cosh": X, "deg2rad": X, "degrees": X, "exp": X,
    "exp2": X, "expm1": X, "fabs": X, "log": P, "log10": P, "log1p": P, "log2": P, "negative": X,
    "rad2deg": X, "radians": X, "reciprocal": P, "sin": X, "sinh": X, "sqrt": P, "square": X,
    "tan": X, "tanh": X,
}  # fmt: skip
TWO = {
    "add": (X, Y), "arctan2": (X, Y), "divide": (X, Q), "fmax": (X, Y), "fmin": (X, Y),
    "logaddexp": (X, Y), "logaddexp2": (X, Y), "maximum": (X, Y), "minimum": (X, Y), "mod": (X, Q),
    "multiply": (X, Y), "power": (P, Q), "remainder": (X, Q), "subtract": (X, Y),
    "true_divide": (X, Q), "matmul": (X, numbers(4, 2)),
}  # fmt: skip
# HIPS autograd has no gradient of these, or no second one
ALONE = {
    "cbrt": (P,), "copysign": (X, Y), "float_power": (P, Q), "fmod": (X, Q), "heaviside": (X, Y),
    "hypot": (X, Y), "ldexp": (X, numpy.array([1, 0, 2, -1])), "positive": (X,), "modf": (X * 3,),
    "divmod": (X * 3, Q), "vecdot": (X, Y), "matvec": (X, Y), "vecmat": (Y, X.T),
}  # fmt: skip
STEPS = "ceil floor rint sign trunc isfinite isinf isnan logical_not signbit"
COMPARED = "equal not_equal less less_equal greater greater_equal logical_and logical_or"
WHOLE = {
    "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "gcd": 2, "lcm": 2, "left_shift": 2,
    "right_shift": 2, "invert": 1, "floor_divide": 2, "add": 2, "absolute": 1, "square": 1,
}  # fmt: skip
SPECIAL = {
    "erf": X, "erfc": X, "erfinv": X / 2, "expit": X, "gammaln": P, "log_ndtr": X, "logit": P / 4,
    "ndtr": X, "ndtri": P / 4, "psi": P, "entr": P, "gamma": 3 * X, "beta": (P, Q),
    "betaln": (P, Q),
}  # fmt: skip


ALONE = {name: arrays for name, arrays in ALONE.items() if there(name)}


@pytest.mark.parametrize("name", [*ONE, *TWO, *ALONE])
def test_values(name, device):
    arrays = (ONE[name],) if name in ONE else TWO.get(name) or ALONE[name]
    same_values(lambda m, *a: getattr(m, name)(*a), arrays, device)


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_gradients(name):
    arrays = (ONE[name],) if name in ONE else TWO[name]
    same_gradients(lambda m, *a: getattr(m, name)(*a), arrays, "cpu")


@pytest.mark.parametrize("name", [*ONE, *TWO][::3])
def test_gradients_elsewhere(name, device):
    arrays = (ONE[name],) if name in ONE else TWO[name]
    same_gradients(lambda m, *a: getattr(m, name)(*a), arrays, device, order=1)


@pytest.mark.parametrize("name", ALONE)
def test_gradients_by_differences(name):
    gradients_by_differences(lambda m, *a: getattr(m, name)(*a), ALONE[name], "cpu")


@pytest.mark.parametrize("name", [*STEPS.split(), *COMPARED.split()])
def test_what_has_no_derivative(name, device):
    arrays = (X,) if name in STEPS.split() else (X, Y)
    same_values(lambda m, *a: getattr(m, name)(*a), arrays, device)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name, device):
    arrays = (numpy.array([6, 4, 3]), numpy.array([4, 2, 1]))[: WHOLE[name]]
    same_values(lambda m, *a: getattr(m, name)(*a), arrays, device)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_of_scipy(name):
    arrays = SPECIAL[name] if isinstance(SPECIAL[name], tuple) else (SPECIAL[name],)
    given = [lucid_gpu.tensor(x, requires_grad=True) for x in arrays]
    function = getattr(scipy.special, name)
    numpy.testing.assert_allclose(plain(function(*given)), function(*arrays), rtol=1e-9)
    assert lucid_gpu.autograd.gradcheck(function, given)


def test_ufuncs_of_others_work_on_values():
    found = scipy.special.jv(0, lucid_gpu.tensor(X))
    numpy.testing.assert_allclose(plain(found), scipy.special.jv(0, X))


@pytest.mark.parametrize("kind", ["f2", "f4", "i1", "i4", "?", "c8"])
def test_types_are_those_of_numpys_loops(kind, device):
    a = numpy.array([1, 0, 1]).astype(kind)
    names = ["exp", "arctan2", "logaddexp", "sqrt"] if kind != "c8" else ["exp", "sqrt"]
    for name in names:
        given = (a,) if name in ("exp", "sqrt") else (a, a)
        with numpy.errstate(divide="ignore"):
            wanted = getattr(numpy, name)(*given)
        found = getattr(np, name)(*[as_tensor(g, device) for g in given])
        assert found.dtype.numpy == wanted.dtype


def test_operators_promote_the_same_on_either_side(device):
    t = lucid_gpu.ones(3, device=device)
    for other in (numpy.ones(3), numpy.float64(2), numpy.arange(3), numpy.ones(3, "f2")):
        assert (t * other).dtype == (other * t).dtype == np.multiply(other, t).dtype
        assert (other * t).device.type == (t - other).device.type == device


@pytest.mark.parametrize("other", [Y, Y.astype("f"), numpy.arange(4), numbers(4, 2)])
def test_products_with_arrays_on_either_side(other, device):
    t = lucid_gpu.tensor(X, device=device, requires_grad=True)
    for found, wanted in ((t @ other, X @ other), (other.T @ t.T, other.T @ X.T)):
        assert found.device.type == device
        assert found.requires_grad
        assert found.dtype.numpy == wanted.dtype
        numpy.testing.assert_allclose(plain(found), wanted)


def test_methods_of_ufuncs(device):
    for call in (
        lambda m, x: numpy.add.accumulate(x, axis=1),
        lambda m, x: numpy.multiply.accumulate(x),
        lambda m, x: numpy.multiply.outer(x, x[0]),
        lambda m, x: numpy.add.reduce(x, axis=(0, 1)),
    ):
        same_values(call, (X,), device)


def test_out(device):
    x, out = as_tensor(X, device), as_tensor(X * 0, device)
    assert np.exp(x, out=out) is out
    numpy.testing.assert_allclose(plain(out), numpy.exp(X))


def test_an_array_is_added_to():
    a = numpy.ones((3, 4))
    b = a
    a += lucid_gpu.tensor(X)
    assert a is b
    numpy.testing.assert_allclose(a, 1 + X)


T = lucid_gpu.tensor(X, requires_grad=True)


def added_to(a, b):
    a += b


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: added_to(numpy.ones((3, 4)), T), RuntimeError, "a = a \\+ t"),
        (lambda: np.add.reduceat(T, [0, 1]), TypeError, "numpy.add.reduceat does not take"),
        (lambda: np.hypot.reduce(T), TypeError, "numpy.hypot.reduce does not take"),
        (lambda: np.exp(T, where=X > 0), TypeError, r"write numpy.where\(mask"),
        (lambda: np.spacing(T), RuntimeError, "numpy.spacing has no gradient here"),
        (lambda: scipy.special.struve(0, T), RuntimeError, "the ufunc struve has no gradient here"),
        (lambda: numpy.frompyfunc(abs, 1, 1)(T), TypeError, "the ufunc abs .* does not take"),
        (lambda: np.add(T, numpy.array(["a"] * 4)), TypeError, "<U1"),
        (lambda: numpy.ones(4, object) * T, TypeError, "object"),
        (lambda: np.exp(T, numpy.zeros((3, 4))), RuntimeError, "requires grad"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_heaviside_of_nan_is_nan() -> None:
    x, at_zero = np.array([0.0, -1.0, 2.0, np.nan, -0.0, np.inf]), np.array(3.0)
    found = np.heaviside(lucid_gpu.tensor(x), lucid_gpu.tensor(at_zero))
    np.testing.assert_array_equal(found.numpy(), np.heaviside(x, at_zero))
