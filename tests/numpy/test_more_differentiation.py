"""Products with derivatives, trees with holes, types kept, and what a number would lose."""

import gc
import math
import threading
import weakref
from collections import OrderedDict, defaultdict

import numpy
import pytest

import lucid_gpu.numpy as np
from lucid_gpu.numpy import misc
from lucid_gpu.numpy.extend import defjvp, defvjp, primitive


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


def test_results_may_be_trees():
    def f(x):
        return {"s": x**2, "t": [np.sum(x), 2 * x]}

    x = numpy.array([1.0, 3.0])
    vjp, value = np.make_vjp(f)(x)
    assert value["t"][0] == 4.0
    assert vjp({"s": x, "t": [1.0, x]}).tolist() == [5, 25]
    with pytest.raises(TypeError, match=r"cotangent must have the structure.*got \*"):
        vjp(x)
    slopes = np.jacobian(f)(x)
    assert slopes["s"].tolist() == [[2, 0], [0, 6]]
    assert slopes["t"][0].tolist() == [1, 1]
    assert np.make_jvp(f)(x)(x)[1]["s"].tolist() == [2, 18]
    curved = np.make_ggnvp(lambda x: x**2, lambda y: np.sum(y**3))
    assert curved(x)(numpy.ones(2)).tolist() == [24, 1944]
    assert np.jacobian(lambda x: np.make_vjp(f)(x)[0](f(x)))(x).shape == (2, 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.r_[x, 2.0, 1:3, x * x],
        lambda x: np.r_["0,2", x, [1.0, 2.0], 3 * x],
        lambda x: np.c_[x, numpy.ones(2), 3 * x],
        lambda x: np.c_[x[:1], 2.0],
        lambda x: np.mean([x, x * x], axis=0),
        lambda x: np.var([x[0], 3.0, x[1]]),
        lambda x: np.append([x[0], x[1]], 2.0),
        lambda x: np.linalg.eigvalsh(np.reshape(np.r_[x, x + 2], (2, 2))),
        lambda x: np.linalg.eigvalsh(np.reshape(np.r_[x, x + 2], (2, 2)), "U"),
        lambda x: abs(np.linalg.eigh(np.reshape(np.r_[x, x * x], (2, 2)) * (1 + 0.5j))[1]),
    ],
)
def test_what_numpy_makes_of_parts(f):
    x, h = numpy.array([1.0, 3.0]), 1e-6
    found, wanted = np.make_jvp(f)(x)(numpy.ones(2)), (f(x + h) - f(x - h)) / (2 * h)
    numpy.testing.assert_allclose(found[0], f(x), 1e-12)
    numpy.testing.assert_allclose(found[1], wanted, 1e-6, 1e-8)
    numpy.testing.assert_allclose(np.jacobian(f)(x).sum(-1), wanted, 1e-6, 1e-8)


def product():
    """A primitive of a tree and a number, with the rules of both modes."""

    @primitive
    def scaled(p, k, power=1):
        return {"y": numpy.asarray(p["a"]) ** power * k}

    defvjp(
        scaled,
        lambda y, p, k, power=1: lambda g: {"a": g["y"] * power * p["a"] ** (power - 1) * k},
        lambda y, p, k, power=1: lambda g: np.sum(g["y"] * y["y"]) / k,
    )
    defjvp(
        scaled,
        lambda t, y, p, k, power=1: {"y": t["a"] * power * p["a"] ** (power - 1) * k},
        "same",
    )
    return lambda a, k: scaled({"a": a}, k, power=3)["y"]


def test_rules_of_the_user(recwarn):
    f, a = product(), numpy.array([1.0, 2.0])
    assert f(a, 2.0).tolist() == [2, 16]
    assert np.jacobian(f)(a, 2.0).tolist() == [[6, 0], [0, 24]]
    assert np.jacobian(f, 1)(a, 2.0).tolist() == [1, 8]
    assert np.make_jvp(f)(a, 2.0)(a)[1].tolist() == [6, 48]
    assert np.make_jvp(f, 1)(a, 2.0)(1.0)[1].tolist() == [1, 8]
    assert np.hessian(lambda a: np.sum(f(a, 2.0)))(a).tolist() == [[12, 0], [0, 24]]
    assert np.grad(lambda k: np.sum(np.grad(lambda a: np.sum(f(a, k)))(a)))(2.0) == 15.0
    one = primitive(lambda x, *, k=1: x * k)
    with pytest.raises(NotImplementedError, match="has no vjp; declare one: defvjp"):
        np.grad(one)(1.0)
    with pytest.raises(NotImplementedError, match="has no jvp; declare one: defjvp"):
        np.make_jvp(one)(1.0)(1.0)
    with pytest.raises(TypeError, match="keyword arguments are constants"):
        np.grad(lambda x: one(1.0, k=x))(1.0)
    defvjp(one, lambda y, x: lambda g: g, argnums=[1])
    with pytest.raises(NotImplementedError, match="no rule for argument 0"):
        np.grad(one)(1.0)


def test_vectors_of_trees_and_where_iterations_end():
    tree = {"w": numpy.ones((2, 2)), "b": [3.0, ()]}
    vector, back = misc.flatten(tree)
    assert back(2 * vector)["b"] == [6.0, ()]
    assert np.grad(lambda p: np.sum(misc.flatten(p)[0] ** 2))(tree)["b"] == [6.0, ()]

    def root(a):
        def step(a):
            return lambda x: 0.5 * (x + a["k"] / x)

        return misc.fixed_point(step, {"k": a}, numpy.ones(2), lambda x, y: abs(x - y).max(), 1e-13)

    a = numpy.array([4.0, 9.0])
    numpy.testing.assert_allclose(np.jacobian(root)(a), numpy.diag(0.5 * a**-0.5), 1e-9, 1e-12)
    bent = np.hessian(lambda a: np.sum(root(a)))(a)
    numpy.testing.assert_allclose(bent, numpy.diag(-0.25 * a**-1.5), 1e-9, 1e-12)
    slope = np.grad(lambda p: np.sum((p["w"] - 2.0) ** 2) + (p["b"][0] - 1.0) ** 2)
    seen = []
    for optimizer, size in ((misc.sgd, 0.1), (misc.rmsprop, 0.1), (misc.adam, 0.1)):
        end = optimizer(
            lambda p, i: slope(p), tree, lambda p, i, g: seen.append(i), 300, step_size=size
        )
        numpy.testing.assert_allclose(misc.flatten(end)[0], [2, 2, 2, 2, 1], atol=1e-3)
    assert seen == [*range(300)] * 3


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
