"""grad and its kin: arrays in, gradients of their kind out, to any order and through trees."""

import pathlib
import warnings
from collections import namedtuple

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from lucid_gpu.devices import backend

Pair = namedtuple("Pair", "slope shift")


@pytest.fixture
def array(device):
    """Makes an array of the device's library."""
    where = lucid_gpu.device(device)
    return lambda values: backend(where).asarray(
        numpy.array(values, float), lucid_gpu.float64, where
    )


def plain(a):
    return a if isinstance(a, (numpy.ndarray, numpy.generic)) else a.get()


def test_arrays_come_back_in_the_library_they_came_from(array):
    x = array([0.5, 1.0])
    value, slope = np.value_and_grad(lambda x: np.sum(np.sin(x) * x))(x)
    assert type(slope) is type(x)
    assert not isinstance(value, lucid_gpu.Tensor)
    wanted = numpy.sin(plain(x)) + plain(x) * numpy.cos(plain(x))
    numpy.testing.assert_allclose(plain(slope), wanted)


def test_second_and_third_derivatives(array):
    x = array(2.0)
    third = np.grad(np.grad(np.grad(lambda x: x**4)))
    assert float(third(x)) == 48.0
    numpy.testing.assert_allclose(
        plain(np.hessian(lambda x: np.sum(x**3))(array([1.0, 2.0]))), [[6, 0], [0, 12]]
    )


def test_an_inner_call_sees_the_outer_variable():
    assert np.grad(lambda y: y * np.grad(lambda x: x * x * y)(2.0))(3.0) == 24.0
    assert np.grad(lambda y: np.grad(lambda x: x + y)(1.0) * y)(5.0) == 1.0


def test_jacobian_of_several_results(array):
    x = array([1.0, 2.0, 3.0])
    found = np.jacobian(lambda x: x[:, None] * x)(x)
    assert found.shape == (3, 3, 3)
    wanted = numpy.einsum("ik,j->ijk", numpy.eye(3), plain(x))
    numpy.testing.assert_allclose(plain(found), wanted + wanted.transpose(1, 0, 2))


def test_trees_keep_their_structure(array):
    def loss(p, x):
        return np.sum((p["line"].slope * x + p["line"].shift) ** 2) + p["rest"][0] * p["rest"][1]

    p = {"line": Pair(array(2.0), array([1.0, 0.0])), "rest": [3.0, numpy.float64(4.0)]}
    found = np.grad(loss)(p, array([1.0, 2.0]))
    assert type(found["line"]) is Pair
    assert float(found["line"].slope) == 2 * (3 * 1 + 4 * 2)
    numpy.testing.assert_allclose(plain(found["line"].shift), [6, 8])
    assert found["rest"] == [4.0, 3.0]


def test_several_arguments():
    assert np.grad(lambda x, y: x * y, (0, 1))(2.0, 3.0) == (3.0, 2.0)
    assert np.grad(lambda x, y: x * y, -1)(2.0, 3.0) == 2.0


def test_tensors_in_tensors_out(device):
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    slope = np.grad(lambda x: np.sum(x**3))(x)
    assert isinstance(slope, lucid_gpu.Tensor)
    slope.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_what_does_not_depend_on_the_argument():
    with pytest.warns(UserWarning, match="does not depend"):
        assert np.grad(lambda x: 3.0)(1.0) == 0.0
    with pytest.warns(UserWarning, match="does not depend"):
        assert np.jacobian(lambda x: np.ones(2))(numpy.ones(3)).shape == (2, 3)


def test_the_argument_stays_as_it_was(array):
    x = array([1.0, 2.0])
    before = plain(x).copy()
    np.grad(lambda x: np.sum(x * x))(x)
    numpy.testing.assert_array_equal(plain(x), before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.setflags(write=False) if isinstance(x, numpy.ndarray) else None
        np.grad(lambda x: np.sum(x * x))(x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: np.grad(lambda x: x * 2)(numpy.ones(3)), TypeError, r"one real number.*\(3,\)"),
        (lambda: np.grad(lambda x: x)("text"), TypeError, "no gradient by a str"),
        (lambda: np.grad(lambda x: x)(True), TypeError, "no gradient by True"),
        (lambda: np.grad(lambda x: x)(numpy.arange(3)), TypeError, "int64; write x.astype"),
        (lambda: np.grad(lambda x: x, 2)(1.0), TypeError, "argnum is 2, .* 1 positional argument$"),
        (lambda: np.grad(lambda x: "text")(1.0), TypeError, "this one gave a str"),
        (lambda: np.sine, AttributeError, "did you mean .sin"),
        (
            lambda: np.grad(lambda x: np.linalg.norm([x[0], x[1]]))(numpy.ones(2)),
            RuntimeError,
            "an array is wanted here, and would have no gradient.* lucid_gpu.numpy.array of a list",
        ),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
    assert np.grad(lambda x: x * x)(3.0) == 6.0  # the next call is an outermost one again


def test_files_of_the_package_do_not_hide_numpys_modules():
    np.grad(lambda x: np.linalg.det(x) + np.abs(np.fft.fft(x)).sum())(numpy.eye(2))
    for name in ("linalg", "fft", "random"):
        assert getattr(np, name) is getattr(numpy, name)
    hidden = {file.stem for file in pathlib.Path(np.__file__).parent.glob("*.py")} & {*dir(numpy)}
    assert not hidden, hidden


CONSTANT = {
    "an array": lambda x: np.array([1.0, 2.0]),
    "NumPy's array": lambda x: numpy.array([1.0, 2.0]),
    "an array without dimensions": lambda x: np.array(3.0),
    "NumPy's number": lambda x: numpy.float64(3.0),
    "a number": lambda x: 3.0,
    "ones": lambda x: np.ones(3),
    "whole numbers": lambda x: np.array([1, 2]),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_functions_that_do_not_depend_on_their_argument(name):
    """All transformations take them: values as they are, derivatives that are zeros."""
    fun, x, v = CONSTANT[name], numpy.ones(2), numpy.array([3.0, 4.0])
    expected = numpy.asarray(fun(x))
    value, tangent = np.make_jvp(fun)(x)(v)
    numpy.testing.assert_array_equal(value, expected)
    numpy.testing.assert_array_equal(tangent, numpy.zeros_like(expected))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pull, value = np.make_vjp(fun)(x)
        numpy.testing.assert_array_equal(value, expected)
        numpy.testing.assert_array_equal(pull(numpy.ones_like(expected)), [0.0, 0.0])
        numpy.testing.assert_array_equal(np.elementwise_grad(fun)(x), [0.0, 0.0])
        assert np.jacobian(fun)(x).shape == (*expected.shape, 2)
        if expected.dtype.kind == "f":
            of_sum = np.grad(lambda y: np.sum(np.make_jvp(fun)(y)(v)[1]))(x)
            numpy.testing.assert_array_equal(of_sum, [0.0, 0.0])
