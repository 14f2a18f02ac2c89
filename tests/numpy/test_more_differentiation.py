"""Products with derivatives, trees with holes, types kept, and what a number would lose."""

import gc
import math
import threading
import weakref
from collections import OrderedDict, defaultdict

import numpy
import pytest

import lucid_gpu.numpy as np


def cubes(p):
    return np.sum(p["a"] ** 3 * p["b"])


P = {"a": numpy.array([1.0, 2.0]), "b": 2.0}


def test_pulled_back_and_pushed_forward():
    vjp, value = np.make_vjp(np.sin)(numpy.zeros(2))
    assert vjp([3.0, 4.0]).tolist() == [3, 4] == vjp([3.0, 4.0]).tolist()
    assert type(value) is numpy.ndarray
    value, pushed = np.make_jvp(cubes)(P)({"a": numpy.ones(2), "b": 1.0})
    assert (value, pushed) == (18.0, 2 * (3 + 12) + 9.0)


def test_products_with_the_hessian():
    product = np.hessian_vector_product(cubes)(P, {"a": numpy.ones(2), "b": 0.0})
    assert product["a"].tolist() == [12, 24]
    assert product["b"] == 15.0


def test_other_results_come_along():
    gradient, rest = np.grad_and_aux(lambda x: (x**2, {"more": x + 1}))(3.0)
    assert (gradient, rest) == (6.0, {"more": 4.0})
    assert type(rest["more"]) is numpy.float64


@pytest.mark.parametrize(
    "slope",
    [
        lambda x: np.make_vjp(np.sin)(x)[0](1.0),
        lambda x: np.make_jvp(np.sin)(x)(1.0)[1],
        lambda x: np.grad_and_aux(lambda y: (np.sin(y), y))(x)[0],
    ],
)
def test_each_is_differentiated_further(slope):
    assert np.grad(slope)(0.3) == pytest.approx(-math.sin(0.3))


def test_trees_may_have_holes():
    assert np.grad(lambda p: p["a"] ** 2)({"a": 3.0, "b": None}) == {"a": 6.0, "b": None}
    with pytest.warns(UserWarning, match="does not depend"):
        assert np.grad(lambda p: 1.0)({}) == {}
    for kind in (OrderedDict(a=3.0), defaultdict(float, a=3.0)):
        assert np.grad(lambda p: p["a"] ** 2)(kind) == {"a": 6.0}


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_numbers_of_numpy_keep_their_type(kind):
    found = np.grad(lambda x: x**2)(numpy.dtype(kind).type(3))
    assert found.dtype == kind
    assert isinstance(found, numpy.generic)
    assert isinstance(np.grad(lambda x: x**2)(numpy.array(3, kind)), numpy.ndarray)


def test_numpy_knows_the_tensors_types():
    def f(x):
        return np.sum(numpy.zeros(2, dtype=x.dtype) + x) * float(numpy.finfo(x.dtype).max > 1)

    assert np.grad(f)(numpy.ones(2, "f4")).tolist() == [1, 1]


def test_nothing_is_left_alive_and_errors_leave_no_trace():
    def argument_of(f):
        a = numpy.ones(10)
        np.grad(f)(a)
        return weakref.ref(a)

    gc.disable()
    try:
        assert argument_of(lambda x: np.sum(np.sin(x) ** 2))() is None
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError):
        argument_of(lambda x: 1 / 0)
    assert type(np.grad(lambda x: x * x)(3.0)) is float


def test_threads_do_not_meet():
    found = []

    def work(k):
        found.extend([(k, np.grad(lambda x: np.sum(x**2) * k)(numpy.ones(2))[0]) for _ in range(9)])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 36
    assert all(slope == 2 * k for k, slope in found)


def into_an_array(x):
    a = numpy.zeros(2)
    a[0] = x[0] * 2
    return np.sum(a)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: np.grad(into_an_array)(numpy.ones(2)), ValueError, "setting an array element"),
        (lambda: np.grad(math.sin)(1.0), RuntimeError, "NumPy's functions instead of math's"),
        (lambda: np.jacobian(lambda x: x * 1j)(numpy.ones(2)), TypeError, "results are real"),
        (lambda: np.hessian(cubes)(P), TypeError, "hessian_vector_product takes dicts"),
        (lambda: np.hessian(np.multiply, (0, 1))(1.0, 2.0), TypeError, "hessian takes one"),
        (lambda: np.grad(np.sin, "x")(1.0), TypeError, "argnum is an int .* got 'x'"),
        (lambda: np.grad(3.0)(1.0), (TypeError, AttributeError), "takes a function, got a float"),
        (lambda: np.grad_and_aux(lambda x: x)(1.0), TypeError, "grad_and_aux takes .* two results"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
    assert np.grad(lambda x: x * x)(3.0) == 6.0


def test_values_may_be_asked_for():
    def f(x):
        assert int(x * 3) == 4
        return x * 2 if x > 0 and float(x.detach()) > 1 else x

    assert np.grad(f, numpy.int64(0))(1.5) == 2.0
