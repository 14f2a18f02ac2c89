"""Products, linear algebra and Fourier transforms: NumPy's values, HIPS autograd's gradients."""

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from tests.numpy.agreement import (
    gradients_by_differences,
    named,
    numbers,
    same_gradients,
    same_values,
)

X, Y, V, W = numbers(3, 4), numbers(4, 2, seed=1), numbers(4), numbers(4, seed=2)
M, T3 = numbers(2, 3, 4), numbers(2, 4, 3, seed=1)
A = numbers(3, 3) + 2 * numpy.eye(3)
AS = numpy.stack([A, A.T + 0.5])
SPD = A @ A.T


def spd(m, x):
    return m.matmul(x, x.T) + m.eye(3)


CASES = [
    ("dot", lambda m, x, y: m.dot(x, y), (X, Y)),
    ("dot of vectors", lambda m, x, y: m.dot(x, y), (V, W)),
    ("dot with a vector", lambda m, x, y: m.dot(x, y), (X, V)),
    ("dot of many", lambda m, x, y: m.dot(x, y), (M, T3)),
    ("inner", lambda m, x, y: m.inner(x, y), (X, V)),
    ("outer", lambda m, x, y: m.outer(x, y), (V, W)),
    ("tensordot", lambda m, x, y: m.tensordot(x, y, axes=([1, 2], [2, 1])), (M, T3)),
    ("tensordot of one axis", lambda m, x, y: m.tensordot(x, y, axes=1), (X, Y)),
    ("einsum", lambda m, x, y: m.einsum("ij,jk->ki", x, y), (X, Y)),
    ("einsum of three", lambda m, x, y, z: m.einsum("ij,jk,j->k", x, y, z), (X, Y, V)),
    ("einsum by lists", lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2], [0, 2]), (X, Y)),
    ("kron", lambda m, x, y: m.kron(x, y), (X[:2, :2], Y)),
    ("cross", lambda m, x, y: m.cross(x, y), (X[:, :3], T3[0, :3])),
    ("det", lambda m, a: m.linalg.det(a), (A,)),
    ("slogdet", lambda m, a: m.linalg.slogdet(a)[1], (A,)),
    ("inv", lambda m, a: m.linalg.inv(a), (AS,)),
    ("solve", lambda m, a, b: m.linalg.solve(a, b), (A, numbers(3, 2))),
    ("solve of a vector", lambda m, a, b: m.linalg.solve(a, b), (A, numbers(3))),
    ("cholesky", lambda m, x: m.linalg.cholesky(spd(m, x)), (A,)),
    ("eigvalsh", lambda m, x: m.linalg.eigh(spd(m, x))[0], (A,)),
    ("norm", lambda m, x: m.linalg.norm(x), (X,)),
    ("norm of rows", lambda m, x: m.linalg.norm(x, axis=1), (X,)),
    ("norm of the third order", lambda m, x: m.linalg.norm(x, 3, axis=0), (X,)),
    ("singular values", lambda m, x: m.linalg.svd(x, full_matrices=False)[1], (X,)),
]
ALONE = [
    ("solve for one matrix", lambda m, a, b: m.linalg.solve(a, b), (numbers(3, 3, 3), A)),
    ("vdot", lambda m, x, y: m.vdot(x, y), (X, X + 1)),
    ("vander", lambda m, x: m.vander(x, 3), (V,)),
    ("polyval", lambda m, p, x: m.polyval(p, x), (V, X)),
    ("cross along", lambda m, x, y: m.cross(x, y, axis=0), (X, X + 1)),
    *[
        (f"convolve {k}", lambda m, x, y, k=k: m.convolve(x, y[:3], k), (V, W))
        for k in ("full", "same", "valid")
    ],
    *[
        (f"correlate {k}", lambda m, x, y, k=k: m.correlate(x, y[:3], k), (V, W))
        for k in ("full", "same", "valid")
    ],
    ("correlate the longer", lambda m, x, y: m.correlate(x[:3], y, "same"), (V, W)),
    ("matrix_power", lambda m, a: m.linalg.matrix_power(a, 3), (A,)),
    ("pinv", lambda m, a: m.linalg.pinv(a), (X,)),
    ("multi_dot", lambda m, x, y, z: m.linalg.multi_dot([x, y, z]), (X, Y, numbers(2, 3))),
    ("eigvalsh", lambda m, a: m.linalg.eigvalsh(a + a.T), (A,)),
    ("qr", lambda m, a: m.linalg.qr(a)[1] ** 2, (A,)),
    ("svdvals", lambda m, a: m.linalg.svdvals(a), (X,)),
    ("lstsq", lambda m, a, b: m.linalg.lstsq(a, b)[:2], (X.T, V)),
    ("nuclear norm", lambda m, a: m.linalg.norm(a, "nuc"), (X,)),
    ("norm kept", lambda m, a: m.linalg.norm(a, keepdims=True), (X,)),
    ("vector_norm", lambda m, a: m.linalg.vector_norm(a, axis=0, ord=3), (X,)),
    ("matrix_norm", lambda m, a: m.linalg.matrix_norm(a), (M,)),
    ("cond", lambda m, a: m.linalg.cond(a), (A,)),
    (
        "tensorsolve",
        lambda m, a, b: m.linalg.tensorsolve(a, b),
        (A.reshape(3, 1, 3), numbers(3, 1)),
    ),
    ("tensorinv", lambda m, a: m.linalg.tensorinv(a, ind=1), (A,)),
    ("trace of many", lambda m, a: m.linalg.trace(a), (AS,)),
    ("diagonal of many", lambda m, a: m.linalg.diagonal(a, offset=1), (AS,)),
    ("vecdot", lambda m, x, y: m.linalg.vecdot(x, y), (X, V)),
    ("outer of vectors", lambda m, x, y: m.linalg.outer(x, y), (V, W)),
]
TRANSFORMS = [
    ("fft", lambda m, x: m.abs(m.fft.fft(x)) ** 2, (V,)),
    ("fft padded", lambda m, x: m.real(m.fft.fft(x, 6, axis=0)), (X,)),
    ("ifft", lambda m, x: m.imag(m.fft.ifft(x, norm="ortho")), (X,)),
    ("fft2", lambda m, x: m.real(m.fft.fft2(x)), (X,)),
    ("fftn", lambda m, x: m.real(m.fft.ifftn(m.fft.fftn(x))), (X,)),
    ("rfft", lambda m, x: m.real(m.fft.rfft(x)), (V,)),
    ("irfft", lambda m, x: m.fft.irfft(m.fft.rfft(x) ** 2), (V,)),
    ("fftshift", lambda m, x: m.fft.fftshift(x), (X,)),
    ("ifftshift", lambda m, x: m.fft.ifftshift(x, axes=1), (X,)),
]
MORE_TRANSFORMS = [
    ("rfft2", lambda m, x: m.imag(m.fft.rfft2(x)), (X,)),
    ("irfft2", lambda m, x: m.fft.irfft2(m.fft.rfft2(x)), (X,)),
    ("irfftn", lambda m, x: m.fft.irfftn(m.fft.rfftn(x)), (X,)),
    ("hfft", lambda m, x: m.fft.hfft(x), (V,)),
    ("ihfft", lambda m, x: m.real(m.fft.ihfft(x)), (V,)),
    ("ifft2", lambda m, x: m.imag(m.fft.ifft2(x)), (X,)),
]


@named(CASES + ALONE + TRANSFORMS + MORE_TRANSFORMS)
def test_values(call, arrays, device):
    same_values(call, arrays, device)


@named(CASES + TRANSFORMS)
def test_gradients(call, arrays):
    same_gradients(call, arrays, "cpu")


@named(ALONE + MORE_TRANSFORMS)
def test_gradients_by_differences(call, arrays):
    gradients_by_differences(call, arrays, "cpu")


@named((ALONE + MORE_TRANSFORMS)[::3])
def test_more_gradients_elsewhere(call, arrays, device):
    gradients_by_differences(call, arrays, device)


@named((CASES + TRANSFORMS)[::3])
def test_gradients_elsewhere(call, arrays, device):
    same_gradients(call, arrays, device, order=1)


SMALL = [
    *[
        lambda m, a, n=n: getattr(m.linalg, n)(a)
        for n in ["inv", "det", "qr", "svd", "eigh", "cholesky"]
    ],
    *[
        lambda m, a, n=n: getattr(m.linalg, n)(a)
        for n in ["pinv", "eigvals", "matrix_rank", "cond"]
    ],
    *[lambda m, a, p=p: m.linalg.norm(a, p) for p in (None, 1, 2, "nuc", "fro")],
    *[lambda m, a, n=n: m.linalg.matrix_power(a, n) for n in (2, -1)],
    *[lambda m, a, n=n: getattr(m.fft, n)(a) for n in ("fft", "irfft", "hfft", "fft2", "irfftn")],
    lambda m, a: m.linalg.solve(a, a[0]),
    lambda m, a: m.linalg.solve(m.eye(3), a),
    lambda m, a: m.linalg.lstsq(a, a[0])[0],
    lambda m, a: m.linalg.tensorinv(a, 1),
]


@pytest.mark.parametrize("call", SMALL)
def test_of_float16_as_numpy(call):
    a = numpy.eye(3, dtype="f2") * 2
    try:
        wanted = call(numpy, a)
    except TypeError:
        with pytest.raises(TypeError, match="float16 is unsupported in linalg; write"):
            call(np, lucid_gpu.tensor(a))
    else:
        assert call(np, lucid_gpu.tensor(a)).dtype.numpy == numpy.asarray(wanted).dtype


def test_right_sides_come_along(device):
    a = lucid_gpu.tensor(A, device=device)
    for found in (np.linalg.solve(a, [1, 2, 3]), np.linalg.lstsq(a, numpy.arange(3))[0]):
        assert found.device.type == device
        assert found.dtype == lucid_gpu.float64


def test_what_numpy_names(device):
    a = lucid_gpu.tensor(A, device=device)
    assert np.linalg.slogdet(a).logabsdet.ndim == 0
    assert tuple(np.linalg.svd(a).Vh.shape) == (3, 3)
    assert np.linalg.eig(a).eigenvalues.dtype == lucid_gpu.complex128
    assert int(np.linalg.matrix_rank(a)) == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: np.linalg.inv(t[:2]), numpy.linalg.LinAlgError, "must be square"),
        (lambda t: np.linalg.inv(t[0]), numpy.linalg.LinAlgError, "1-dimensional"),
        (lambda t: np.linalg.cholesky(-t @ t.T), numpy.linalg.LinAlgError, "positive"),
        (lambda t: np.linalg.inv(t * 0), numpy.linalg.LinAlgError, "singular"),
        (lambda t: np.dot(t, t[:2]), ValueError, r"\(3, 3\) and \(2, 3\) not aligned: 3 != 2"),
        (lambda t: np.tensordot(t, t[:, :2], axes=1), None, None),
        (lambda t: np.tensordot(t, t[:2], axes=1), ValueError, "shape-mismatch"),
        (lambda t: np.cross(t[:, :2], t[:, :2]), ValueError, "must be 3"),
        (lambda t: np.convolve(t, t), ValueError, "too deep"),
        (lambda t: np.linalg.qr(t, "raw"), ValueError, "'raw'"),
        (lambda t: np.einsum("ij->i", t, order="F"), TypeError, "order"),
    ],
)
def test_refusals(call, error, text):
    t = lucid_gpu.tensor(A)
    if error is None:
        assert tuple(call(t).shape) == (3, 2)
        return
    with pytest.raises(error, match=text):
        call(t)
