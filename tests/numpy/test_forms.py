"""Every form a tensor has: without dimensions, without elements, strided, broadcast.

Values are NumPy's, first and second derivatives those of HIPS autograd.
"""

import numpy
import pytest

from tests.numpy.agreement import numbers, same_gradients, same_values

ONE = (
    "absolute arctan arcsinh cos cosh conj deg2rad exp exp2 expm1 negative radians sin sinh square "
    "tan tanh sinc real nan_to_num sum mean prod var std cumsum ravel transpose squeeze flipud"
)
POSITIVE = "log log10 log1p log2 sqrt reciprocal"
TWO = "add subtract multiply divide arctan2 logaddexp maximum minimum fmax fmin dot"
OF_NONE = "add multiply exp sin sum cumsum ravel transpose concatenate"  # takes no element too
ROWS = {"flipud"}  # what has no meaning without dimensions
MATRIX, LINE = numbers(4, 6, low=0.3, high=2.0), numbers(6, low=0.3, high=2.0)
COLUMN = numbers(4, 1, seed=3, low=0.3, high=2.0)

# what is handed to the function, made of the argument by each library itself
FORMS = {
    "strided": (lambda x: x[::2, 1::3], MATRIX),
    "transposed": (lambda x: x.T, MATRIX),
    "backwards": (lambda x: x[::-1], LINE),
    "a number": (lambda x: x, numpy.array(0.7)),
}


def forms(names, without=()):
    pairs = [(n, f) for n in names.split() for f in FORMS if not (f in without and n in ROWS)]
    return pytest.mark.parametrize(("name", "form"), pairs)


def of_one(name, form):
    view, values = FORMS[form]
    return lambda m, x: getattr(m, name)(view(x)), (values,)


@forms(f"{ONE} {POSITIVE}", without=["a number"])
def test_of_one(name, form):
    call, arrays = of_one(name, form)
    same_values(call, arrays, "cpu")
    same_gradients(call, arrays, "cpu")


@forms(TWO)
def test_of_two(name, form):
    view, values = FORMS[form]
    other = numpy.cos(values) + 0.1

    def call(m, x, y):
        return getattr(m, name)(view(x), view(y).T if name == "dot" else view(y))

    same_values(call, (values, other), "cpu")
    same_gradients(call, (values, other), "cpu")


@pytest.mark.parametrize("name", [n for n in TWO.split() if n != "dot"])
def test_broadcast(name):
    def call(m, x, y):
        return getattr(m, name)(x, y) + getattr(m, name)(y, 0.9)

    same_values(call, (LINE, COLUMN), "cpu")
    same_gradients(call, (LINE, COLUMN), "cpu")


@pytest.mark.parametrize("name", OF_NONE.split())
def test_of_no_elements(name):
    def call(m, x):
        if name == "concatenate":
            return m.concatenate([x, x], axis=1)
        return getattr(m, name)(x, x) if name in TWO.split() else getattr(m, name)(x)

    nothing = numpy.zeros((0, 3))
    same_values(call, (nothing,), "cpu")
    same_gradients(call, (nothing,), "cpu")
