"""How a function of NumPy's is held against NumPy's values and HIPS autograd's gradients."""

import warnings

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from lucid_gpu.devices import backend

NEWER = ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat")  # than NumPy 2.0
since_2_1 = pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0", reason="NumPy 2.0 cannot do it"
)


def there(name):
    """Whether this NumPy has a function."""
    return name not in NEWER or hasattr(numpy, name)


def named(cases):
    """A test's cases: name, function, arrays."""
    cases = [c for c in cases if there(c[0])]
    return pytest.mark.parametrize(
        ("call", "arrays"), [c[1:] for c in cases], ids=[c[0] for c in cases]
    )


def numbers(*shape, seed=0, low=-1.0, high=1.0):
    """Numbers without ties, none near zero."""
    rng = numpy.random.default_rng([seed, *shape])
    drawn = rng.permutation(
        numpy.linspace(low, high, max(numpy.prod(shape, dtype=int), 1) + 2)[1:-1]
    )
    return (drawn[: numpy.prod(shape, dtype=int)] + 0.0123).reshape(shape)


def on(device, value):
    """An array in the library of a device."""
    if not isinstance(value, numpy.ndarray):
        return value
    where = lucid_gpu.device(device)
    return backend(where).asarray(value, lucid_gpu.as_tensor(value).dtype, where)


def plain(value):
    """NumPy's array of whatever array or tensor."""
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, lucid_gpu.Tensor):
        return value.detach().cpu().numpy()
    return value.get() if hasattr(value, "get") else value


def weighted(module, call, *arrays):
    """One number that every element of every result moves."""
    results = call(module, *arrays)
    total = 0.0
    for k, result in enumerate(results if isinstance(results, (tuple, list)) else [results]):
        shape = module.shape(result)
        weights = numpy.cos(numpy.arange(numpy.prod(shape, dtype=int)) + k).reshape(shape)
        if isinstance(result, lucid_gpu.Tensor):
            weights = lucid_gpu.tensor(weights, device=result.device)
        total = total + module.sum(result * weights)
    return total


def same_values(call, arrays, device):
    """Values, shapes and types are NumPy's."""
    wanted = call(numpy, *arrays)
    found = call(np, *[as_tensor(a, device) for a in arrays])
    many = isinstance(wanted, (tuple, list))
    for w, f in zip(wanted if many else [wanted], found if many else [found], strict=True):
        assert isinstance(f, lucid_gpu.Tensor), type(f)
        assert f.device.type == device
        assert tuple(f.shape) == numpy.shape(w)
        assert f.dtype.numpy == numpy.asarray(w).dtype, (f.dtype, numpy.asarray(w).dtype)
        close = 1e-6 if f.dtype == lucid_gpu.float32 else 1e-9
        numpy.testing.assert_allclose(plain(f), w, rtol=close, atol=1e-12)


def as_tensor(value, device):
    return lucid_gpu.tensor(value, device=device) if isinstance(value, numpy.ndarray) else value


def same_gradients(call, arrays, device, order=2):
    """First and second derivatives are those of HIPS autograd."""
    pytest.importorskip("autograd", reason="the peer: `pip install autograd`")
    import autograd
    import autograd.numpy as anp

    places = [
        k for k, a in enumerate(arrays) if isinstance(a, numpy.ndarray) and a.dtype.kind == "f"
    ]

    def slope(grad, module):
        return grad(lambda *given: weighted(module, call, *given), places)

    given = [on(device, a) for a in arrays]
    found = slope(np.grad, np)(*given)
    wanted = slope(autograd.grad, anp)(*arrays)
    for f, w in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(plain(f), w, rtol=1e-8, atol=1e-10)
    if order < 2:
        return
    with warnings.catch_warnings():  # both say that second derivatives of linear functions are none
        warnings.simplefilter("ignore")
        _same_second(slope, arrays, given, places)


def _same_second(slope, arrays, given, places):
    import autograd
    import autograd.numpy as anp

    def bent(grad, module):
        def total(*given):
            slopes = slope(grad, module)(*given)
            return sum(module.sum(s * s) for s in slopes)

        return grad(total, places)

    found = bent(np.grad, np)(*given)
    wanted = bent(autograd.grad, anp)(*arrays)
    for f, w in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(plain(f), w, rtol=1e-7, atol=1e-9)


def _slopes(call, arrays, device):
    places = [k for k, a in enumerate(arrays) if isinstance(a, numpy.ndarray) and a.dtype == "f8"]
    slopes = np.grad(lambda *given: weighted(np, call, *given), places)
    return slopes(*[on(device, a) for a in arrays])


def gradients_by_differences(call, arrays, device):
    """First and second derivatives, against finite differences; elsewhere, against the CPU's."""
    if device != "cpu":
        found, wanted = (_slopes(call, arrays, where) for where in (device, "cpu"))
        for f, w in zip(found, wanted, strict=True):
            numpy.testing.assert_allclose(plain(f), plain(w), rtol=1e-9, atol=1e-12)
        return
    leaves = [as_tensor(a, device) for a in arrays]
    moving = [
        t.requires_grad_()
        for t in leaves
        if isinstance(t, lucid_gpu.Tensor) and t.dtype.is_floating_point
    ]

    def function(*given):
        rest = iter(given)
        results = call(np, *[next(rest) if any(t is m for m in moving) else t for t in leaves])
        return tuple(results) if isinstance(results, list) else results

    assert lucid_gpu.autograd.gradcheck(function, moving)
    assert lucid_gpu.autograd.gradgradcheck(function, moving)
