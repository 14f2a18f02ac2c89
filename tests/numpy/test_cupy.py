"""Tensors given to CuPy's own functions, where there is CuPy or its stand-in."""

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import plain

X = numpy.array([0.3, -0.7, 1.2])


@pytest.fixture
def cupy(request, device):
    if device == "cpu":
        pytest.skip("CuPy's arrays are on a GPU")
    return pytest.importorskip("cupy")


def test_ufuncs_of_cupy_have_gradients(cupy):
    x = cupy.asarray(X)
    slope = np.grad(lambda t: np.sum(cupy.multiply(cupy.sin(t), x)))(x)
    assert type(slope) is cupy.ndarray
    numpy.testing.assert_allclose(slope.get(), numpy.cos(X) * X)


@pytest.mark.parametrize("side", [lambda a, t: a * t, lambda a, t: t * a, lambda a, t: a - t * a])
def test_operators_on_either_side(cupy, side):
    x = cupy.asarray(X)
    t = lucid_gpu.tensor(X, device="cuda", requires_grad=True)
    found = side(x, t)
    assert isinstance(found, lucid_gpu.Tensor)
    found.sum().backward()
    numpy.testing.assert_allclose(t.grad.cpu().numpy(), [X, X, -X][SIDES.index(side)])


def test_products_on_either_side(cupy):
    t = lucid_gpu.tensor(X, device="cuda", requires_grad=True)
    matrix = cupy.asarray(numpy.outer(X, X))
    for found in (t @ matrix, matrix @ t):
        assert isinstance(found, lucid_gpu.Tensor)
        numpy.testing.assert_allclose(plain(found), X @ numpy.outer(X, X))


SIDES = list(test_operators_on_either_side.pytestmark[0].args[1])


def test_no_gradient_is_lost_in_an_array(cupy):
    t = lucid_gpu.tensor(X, device="cuda", requires_grad=True)
    for make in (cupy.asarray, cupy.array):
        with pytest.raises(RuntimeError, match="requires grad"):
            make(t)
    for call in (lambda: cupy.sum(t), lambda: cupy.concatenate([t, t])):
        with pytest.raises(TypeError):
            call()
    assert np.sum(t).requires_grad
    assert np.concatenate([t, t]).requires_grad


class ElementwiseKernel:
    name = "twice"

    def __call__(self, x):
        assert not isinstance(x, lucid_gpu.Tensor)
        return 2 * x


def test_a_kernel_of_the_users_takes_the_array(cupy):
    t = lucid_gpu.tensor(X, device="cuda")
    found = t.__cupy_override_elementwise_kernel__(ElementwiseKernel(), t)
    numpy.testing.assert_allclose(found.get(), 2 * X)
    t.requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        t.__cupy_override_elementwise_kernel__(ElementwiseKernel(), t)


class Ufunc:
    nargs = 2

    def __init__(self, name):
        self.name = name


def test_names_of_cupys_ufuncs():
    t = lucid_gpu.tensor(X, requires_grad=True)
    ask = t.__cupy_override_elementwise_kernel__
    numpy.testing.assert_allclose(ask(Ufunc("cupy_sinc"), t).detach().numpy(), numpy.sinc(X))
    assert ask(Ufunc("cupyx_scipy_special_erf"), t).requires_grad
    assert ask(Ufunc("cupyx_scipy_special_digamma"), t).requires_grad
    with pytest.raises(TypeError, match="cupyx.scipy.special.lpmv does not take"):
        ask(Ufunc("cupyx_scipy_lpmv"), t)
