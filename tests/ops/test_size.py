"""What arrays have and PyTorch's tensors have otherwise or not at all: size, astype, copy."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import lucid_gpu


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
