"""What arrays have and PyTorch's tensors have otherwise or not at all: size, astype, copy."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import same_error


def test_size_is_a_number_and_a_method(device):
    x = lucid_gpu.ones(2, 3, device=device)
    assert x.size == 6
    assert x.size // 2 == 3
    assert isinstance(x.size, int)
    assert x.size() == (2, 3)
    assert x.size(-1) == x.size(dim=1) == 3
    assert lucid_gpu.Tensor.size(x, 0) == 2
    assert pickle.loads(pickle.dumps(x.size)) == 6
    with pytest.raises(IndexError, match="out of range"):
        x.size(2)


def test_size_keeps_no_tensor_alive():
    x = lucid_gpu.ones(2, 3)
    n, gone = x.size, weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert n == 6


def test_methods_of_arrays(device):
    x = lucid_gpu.tensor([1.0, 2.5], dtype=lucid_gpu.float64, device=device, requires_grad=True)
    assert x.astype("float32").dtype == lucid_gpu.float32
    assert x.astype(np.int64).tolist() == [1, 2]
    assert x.astype(float, copy=False) is x
    assert x.copy() is not x
    (x.copy() * x.conjugate()).sum().backward()
    assert x.grad.tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, v: x.dot(x.T),
        lambda x, v: x.dot(v),
        lambda x, v: v.dot(v),
        lambda x, v: x.dot(np.ones(3)),
        lambda x, v: x.dot(np.ones((3, 2))),
        lambda x, v: v.dot(np.ones((3, 2))),
        lambda x, v: x.transpose(),
        lambda x, v: x.transpose((1, 0)),
        lambda x, v: x.reshape(1, 2, 3).transpose(2, 0, 1),
        lambda x, v: x.T.reshape(3, 1, 2).squeeze(axis=1),
        lambda x, v: x.argsort(axis=0),
    ],
)
def test_methods_of_arrays_mean_what_they_do_there(call, device):
    x, v = np.arange(6.0).reshape(2, 3) ** 2, np.array([1.0, 3.0, -2.0])
    found = call(*[lucid_gpu.tensor(a, device=device) for a in (x, v)])
    np.testing.assert_allclose(found.cpu().numpy(), call(x, v))


@pytest.mark.parametrize("other", [[2], 5, "a"])
def test_a_shape_is_joined_to_tuples_only(other):
    same_error(lambda m: m.Size([1]) + other, "can only concatenate tuple (not")
