"""Functions that move elements and compute nothing: NumPy's values, HIPS autograd's gradients."""

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

X, V, M = numbers(3, 4), numbers(4), numbers(2, 3, 4)
Y = numbers(3, 4, seed=1)

# those that HIPS autograd has too
CASES = [
    ("reshape", lambda m, x: m.reshape(x, (4, 3)), (X,)),
    ("reshape by columns", lambda m, x: m.reshape(x, (2, -1), order="F"), (X,)),
    ("ravel", lambda m, x: m.ravel(x), (X,)),
    ("ravel by columns", lambda m, x: m.ravel(x, order="F"), (X,)),
    ("transpose", lambda m, x: m.transpose(x), (M,)),
    ("transpose of axes", lambda m, x: m.transpose(x, (1, 2, 0)), (M,)),
    ("swapaxes", lambda m, x: m.swapaxes(x, 0, -1), (M,)),
    ("moveaxis", lambda m, x: m.moveaxis(x, 0, -1), (M,)),
    ("rollaxis", lambda m, x: m.rollaxis(x, 2), (M,)),
    ("squeeze", lambda m, x: m.squeeze(x[:, :1], axis=1), (M,)),
    ("expand_dims", lambda m, x: m.expand_dims(x, 1), (X,)),
    ("atleast_2d", lambda m, x: m.atleast_2d(x), (V,)),
    ("atleast_3d", lambda m, x: m.atleast_3d(x), (V,)),
    ("concatenate", lambda m, x, y: m.concatenate((x, y), axis=1), (X, Y)),
    ("stack", lambda m, x, y: m.stack([x, y], axis=1), (X, Y)),
    ("vstack", lambda m, x, y: m.vstack((x, y)), (X, V)),
    ("hstack", lambda m, x, y: m.hstack((x, y)), (X, Y)),
    ("dstack", lambda m, x, y: m.dstack((x, y)), (X, Y)),
    ("column_stack", lambda m, x, y: m.column_stack((x, y)), (V, V + 1)),
    ("append", lambda m, x, y: m.append(x, y, axis=0), (X, Y)),
    ("fliplr", lambda m, x: m.fliplr(x), (X,)),
    ("flipud", lambda m, x: m.flipud(x), (X,)),
    ("rot90", lambda m, x: m.rot90(x), (X,)),
    ("roll", lambda m, x: m.roll(x, 2, axis=1), (X,)),
    ("roll flat", lambda m, x: m.roll(x, -5), (X,)),
    ("tile", lambda m, x: m.tile(x, (2, 1, 2)), (X,)),
    ("repeat", lambda m, x: m.repeat(x, 2, axis=1), (X,)),
    ("pad", lambda m, x: m.pad(x, ((1, 0), (2, 1)), "constant"), (X,)),
    ("diag", lambda m, x: m.diag(x), (V,)),
    ("tril", lambda m, x: m.tril(x, -1), (X,)),
    ("triu", lambda m, x: m.triu(x, 1), (X,)),
]
# those that it has not, or refuses second derivatives of
ALONE = [
    (
        "sliding_window_view",
        lambda m, x: numpy.lib.stride_tricks.sliding_window_view(x, (2, 3), (-1, 0)),
        (X,),
    ),
    (
        "sliding_window_view of one axis",
        lambda m, x: numpy.lib.stride_tricks.sliding_window_view(x, 2),
        (V,),
    ),
    ("concatenate flat", lambda m, x, y: m.concatenate([x, y], axis=None), (X, V)),
    ("split", lambda m, x: m.split(x, 2, axis=1), (X,)),
    ("array_split", lambda m, x: m.array_split(x, 3, axis=1), (X,)),
    ("hsplit", lambda m, x: m.hsplit(x, [1, 3]), (X,)),
    ("vsplit", lambda m, x: m.vsplit(x, 3), (X,)),
    ("dsplit", lambda m, x: m.dsplit(x, 2), (M,)),
    ("flip", lambda m, x: m.flip(x, 1), (X,)),
    ("diag of a matrix", lambda m, x: m.diag(x, 1), (X,)),
    ("diagonal", lambda m, x: m.diagonal(x, 0, 1, 2), (M,)),
    ("broadcast_to", lambda m, x: m.broadcast_to(x, (2, 4)), (V,)),
    ("broadcast_arrays", lambda m, x, y: m.broadcast_arrays(x, y), (X, V)),
    ("meshgrid", lambda m, x, y: m.meshgrid(x, y), (V, V[:3])),
    ("meshgrid by rows", lambda m, x, y: m.meshgrid(x, y, indexing="ij", sparse=True), (V, V[:3])),
    ("matrix_transpose", lambda m, x: m.matrix_transpose(x), (M,)),
    ("permute_dims", lambda m, x: m.permute_dims(x, (2, 0, 1)), (M,)),
    ("unstack", lambda m, x: m.unstack(x, axis=1), (X,)),
    ("copy", lambda m, x: m.copy(x), (X,)),
    ("astype", lambda m, x: m.astype(x, "f8"), (X,)),
    ("block", lambda m, x, y: m.block([[x, y], [y, x]]), (X, Y)),
    ("delete", lambda m, x: m.delete(x, [0, 2], axis=1), (X,)),
    ("delete flat", lambda m, x: m.delete(x, slice(1, 5)), (X,)),
    ("insert", lambda m, x: m.insert(x, 1, 2.0, axis=0), (X,)),
    ("insert row", lambda m, x, y: m.insert(x, 1, y, axis=0), (X, V)),
    ("insert several", lambda m, x, y: m.insert(x, [1, 3], y, axis=1), (X, numbers(3, 2))),
    ("insert flat", lambda m, x: m.insert(x, [2, 2, 5], [7.0, 8.0, 9.0]), (X,)),
    ("resize", lambda m, x: m.resize(x, (3, 3)), (V,)),
    ("repeat each", lambda m, x: m.repeat(x, [1, 0, 3, 2], axis=1), (X,)),
    ("pad reflected", lambda m, x: m.pad(x, 2, "reflect"), (X,)),
    ("pad edge", lambda m, x: m.pad(x, (0, 2), mode="edge"), (X,)),
    ("pad periodic", lambda m, x: m.pad(x, ((5, 0), (0, 1)), "wrap"), (X,)),
    ("pad with numbers", lambda m, x: m.pad(x, 1, constant_values=(2, 3)), (X,)),
    ("diagflat", lambda m, x: m.diagflat(x, 1), (V,)),
    ("full_like", lambda m, x, y: m.full_like(x, y), (X, numbers())),
    ("zeros_like", lambda m, x: m.zeros_like(x, shape=(2, 2)) + x[0, 0], (X,)),
    ("of nothing", lambda m, x: m.concatenate([x, x[:0]], axis=0), (X,)),
    ("negative bounds", lambda m, x: m.split(x, [-3, -1], axis=1), (X,)),
]


@named(CASES + ALONE)
def test_values(call, arrays, device):
    same_values(call, arrays, device)


@named(CASES)
def test_gradients(call, arrays):
    same_gradients(call, arrays, "cpu")


@named(ALONE)
def test_gradients_by_differences(call, arrays):
    gradients_by_differences(call, arrays, "cpu")


@named(CASES[::3])
def test_gradients_elsewhere(call, arrays, device):
    same_gradients(call, arrays, device, order=1)


@named(ALONE[::3])
def test_more_gradients_elsewhere(call, arrays, device):
    gradients_by_differences(call, arrays, device)


def test_questions(device):
    x = lucid_gpu.tensor(M, device=device)
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((2, 3, 4), 3, 24, 3)
    assert np.ones_like(x, dtype="i4").dtype == lucid_gpu.int32


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: np.concatenate([x, x[:, :2]]), ValueError, r"must match exactly, .*\(3, 2\)"),
        (lambda x: np.concatenate([]), ValueError, "need at least one array"),
        (lambda x: np.stack([x, x[0]]), ValueError, "same shape"),
        (lambda x: np.split(x, 3, axis=1), ValueError, "equal division"),
        (lambda x: np.transpose(x, (0,)), ValueError, "axes don't match"),
        (lambda x: np.swapaxes(x, 0, 2), numpy.exceptions.AxisError, "axis 2 is out of bounds"),
        (
            lambda x: numpy.lib.stride_tricks.sliding_window_view(x, 2),
            ValueError,
            "one extent for each of axes",
        ),
        (lambda x: np.squeeze(x, 0), ValueError, "not equal to one"),
        (lambda x: np.reshape(x, (5, -1)), (ValueError, RuntimeError), "5"),
        (lambda x: np.pad(x, 1, "mean"), ValueError, "'mean'"),
        (lambda x: np.broadcast_to(x, (2, 2)), ValueError, "broadcast"),
        (lambda x: np.is_busday(x), TypeError, "is_busday does not take"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(lucid_gpu.tensor(X))
