"""Tensors given to CuPy's own functions, where there is CuPy or its stand-in."""

import operator

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


ARITHMETIC = (
    "add sub mul truediv floordiv mod pow matmul lt le eq ne gt ge and_ or_ xor lshift rshift "
    "divmod"
)


@pytest.mark.parametrize("kinds", ["f f", "f d", "d f", "i f", "i i", "i q", "e f", "? i", "? ?"])
@pytest.mark.parametrize("name", ARITHMETIC.split())
def test_an_array_on_the_left_is_as_one_of_numpys(cupy, name, kinds):
    """Which the CPU's tests hold against NumPy."""
    one, other = kinds.split()
    values = numpy.arange(1, 5).reshape(2, 2)
    n, more = values.astype(one), (values % 3 + 1).astype(other)
    x = cupy.asarray(n)
    op = getattr(operator, name, None) or divmod

    def ask(array, device):
        t = lucid_gpu.tensor(more, device=device)
        try:
            found = op(array, t)
        except (TypeError, RuntimeError) as error:
            return type(error)
        return [(type(f), f.dtype, f.tolist()) for f in (found if name == "divmod" else [found])]

    assert ask(x, "cuda") == ask(n, "cpu")


def test_an_array_on_the_left_without_dimensions(cupy):
    t = lucid_gpu.tensor(X, device="cuda", dtype=lucid_gpu.float32)
    found = cupy.asarray(2.0) * t
    assert (
        isinstance(found, lucid_gpu.Tensor) and found.dtype is (numpy.asarray(2.0) * t.cpu()).dtype
    )


def test_arrays_are_written_in_place(cupy):
    for change in (operator.iadd, operator.imul, operator.isub):
        x, n = cupy.asarray(X), X.copy()
        found = change(x, lucid_gpu.tensor(X, device="cuda"))
        assert found is x
        numpy.testing.assert_array_equal(x.get(), change(n, lucid_gpu.tensor(X)))
    t = lucid_gpu.tensor(X, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        x += t
    x = cupy.asarray(numpy.outer(X, X))
    x @= lucid_gpu.tensor(X, device="cuda")
    assert isinstance(x, lucid_gpu.Tensor)


def test_ufuncs_with_an_array_first(cupy):
    x, t = cupy.asarray(X), lucid_gpu.tensor(X, device="cuda", requires_grad=True)
    for add in (cupy.add, numpy.add):
        for tensor in (t, t.detach()):
            found = add(x, tensor)
            assert isinstance(found, lucid_gpu.Tensor)
            assert found.requires_grad == tensor.requires_grad
    out = cupy.empty(3)
    for found in (cupy.add(x, t.detach(), out), cupy.add(x, t.detach(), out=out)):
        assert found is out and out.tolist() == (2 * X).tolist()


def test_a_pending_tensor_stays_pending(cupy):
    t = lucid_gpu.tensor(X, device="cuda") * 2
    found = cupy.asarray(X) + t
    assert not t._expr.program.is_load and not found._expr.program.is_load


def test_a_class_of_ones_own_answers_numpy():
    class Named(lucid_gpu.Tensor):
        asked = 0

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            Named.asked += 1
            return super().__array_ufunc__(ufunc, method, *inputs, **options)

    t = Named([1.0, 2.0])
    numpy.testing.assert_array_equal(plain(numpy.ones(2) + t), [2.0, 3.0])
    assert Named.asked == 1
    assert lucid_gpu.ones(1).__array_ufunc__ is None


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
    nin, nargs = 1, 2

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
