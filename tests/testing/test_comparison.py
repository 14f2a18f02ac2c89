"""assert_close and make_tensor, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.testing import assert_close, make_tensor
from tests.oracle import torch_module

CASES = {
    "equal": lambda m: (m.tensor([1.0, 2]), m.tensor([1.0, 2])),
    "near": lambda m: (m.tensor([1.0, 2]), m.tensor([1.0, 2.000001])),
    "far": lambda m: (m.tensor([1.0, 2]), m.tensor([1.0, 2.5])),
    "shape": lambda m: (m.ones(2), m.ones(3)),
    "dtype": lambda m: (m.ones(2), m.ones(2).double()),
    "floats": lambda m: (1.0, 1.5),
    "integers": lambda m: (m.tensor([1, 2]), m.tensor([1, 3])),
    "large integers": lambda m: (m.tensor([2**60]), m.tensor([2**60 + 1])),
    "large numbers": lambda m: (2**60, 2**60 + 1),
    "bools": lambda m: (m.tensor([True, False]), m.tensor([True, True])),
    "nan": lambda m: (m.tensor([float("nan")]), m.tensor([float("nan")])),
    "infinite": lambda m: (m.tensor([float("inf")]), m.tensor([float("inf")])),
    "list": lambda m: ([1.0, m.ones(2)], [1.0, m.zeros(2)]),
    "dict": lambda m: ({"a": [m.ones(1)]}, {"a": [m.zeros(1)]}),
    "length": lambda m: ([1.0], [1.0, 2.0]),
    "none": lambda m: (None, None),
    "kinds": lambda m: (m.ones(2), [1.0, 1.0]),
    "double": lambda m: (m.ones(2).double(), m.ones(2).double() + 1e-6),
    "arrays": lambda m: (np.ones(2), np.ones(2)),
    "arrays that differ": lambda m: (np.ones(2), np.array([1.0, 2.0])),
    "arrays of two types": lambda m: (np.ones(2), np.ones(2, np.float32)),
    "an array and a tensor": lambda m: (np.ones(2), m.ones(2).double()),
    "numbers of numpy": lambda m: (np.int64(2), np.int64(3)),
    "half": lambda m: (m.ones(2).half(), m.ones(2).half() + 0.5),
}


def outcome(m, check, name, **options):
    try:
        check(*CASES[name](m), **options)
    except Exception as error:
        return type(error), str(error).replace("lucid_gpu", "torch").split("\n")[0]
    return None


@pytest.mark.parametrize("name", CASES)
def test_assert_close_agrees_with_pytorchs(name):
    torch = torch_module()
    expected = outcome(torch, torch.testing.assert_close, name)
    got = outcome(lucid_gpu, assert_close, name)
    if name in ("kinds", "an array and a tensor"):
        assert got[0] is expected[0]
    else:
        assert got == expected


@pytest.mark.parametrize("options", [
    {"rtol": 0.5, "atol": 0.0}, {"rtol": 0.0, "atol": 0.1}, {"check_dtype": False},
    {"equal_nan": True}, {"rtol": 1.0}, {"msg": "mine"}, {"msg": lambda words: "[" + words + "]"},
])  # fmt: skip
@pytest.mark.parametrize("name", ["far", "dtype", "nan"])
def test_options_of_assert_close_are_pytorchs(name, options):
    torch = torch_module()
    got = outcome(lucid_gpu, assert_close, name, **options)
    expected = outcome(torch, torch.testing.assert_close, name, **options)
    assert (got and got[0]) == (expected and expected[0])
    if "msg" in options:
        assert got == expected


def test_the_difference_is_said_with_its_place(device):
    a = lucid_gpu.zeros(2, 3, device=device)
    b = a.clone()
    b[1, 2] = 0.5
    with pytest.raises(AssertionError) as error:
        assert_close(a, b)
    assert "Mismatched elements: 1 / 6 (16.7%)" in str(error.value)
    assert "Greatest absolute difference: 0.5 at index (1, 2) (up to 1e-05" in str(error.value)


def test_sparse_tensors_are_compared_by_their_elements(device):
    s = lucid_gpu.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,), device=device)
    assert_close(s, s.coalesce())
    with pytest.raises(AssertionError, match="'layout' do not match"):
        assert_close(s, s.to_dense())


def test_both_tolerances_or_neither():
    with pytest.raises(ValueError, match="must both be specified or both be unspecified"):
        assert_close(1.0, 1.0, rtol=1.0)


@pytest.mark.parametrize(
    "name", ["float32", "float64", "int64", "uint8", "bool", "complex64", "bfloat16"]
)
def test_make_tensor(name, device):
    d = getattr(lucid_gpu, name)
    t = make_tensor(4, 5, dtype=d, device=device)
    assert (t.shape, t.dtype, t.device.type) == ((4, 5), d, device) and t.is_contiguous()
    apart = make_tensor((4, 5), dtype=d, device=device, noncontiguous=True)
    assert not apart.is_contiguous() and apart.shape == (4, 5)
    if name not in ("bool", "complex64"):
        low = make_tensor(100, dtype=d, device=device, low=2, high=4)
        assert low.min().item() >= 2 and low.max().item() <= 4
        assert (
            make_tensor(
                200, dtype=d, device=device, low=0, high=1 + d.is_floating_point, exclude_zero=True
            )
            != 0
        ).all()
    if d.is_floating_point:
        assert make_tensor(3, dtype=d, device=device, requires_grad=True).is_leaf


@pytest.mark.parametrize("name", ["channels_last", "contiguous_format"])
def test_make_tensor_lies_as_it_is_told(name, device):
    layout = getattr(lucid_gpu, name)
    settings = {"dtype": lucid_gpu.float32, "device": device, "memory_format": layout}
    t = make_tensor(2, 3, 4, 5, requires_grad=True, **settings)
    assert t.is_contiguous(memory_format=layout) and t.is_leaf and t.requires_grad
    with pytest.raises(ValueError, match="mutually exclusive"):
        make_tensor(2, 3, 4, 5, noncontiguous=True, **settings)


def test_make_tensor_refuses():
    with pytest.raises(ValueError, match="`low` must be less than `high`"):
        make_tensor(2, dtype=lucid_gpu.float32, device="cpu", low=2, high=1)
    with pytest.raises(ValueError, match="must be False for integral dtype"):
        make_tensor(2, dtype=lucid_gpu.int32, device="cpu", requires_grad=True)


def test_strides_are_compared_where_that_is_asked_for():
    def words(m):
        row_major, columns = m.ones(2, 3), m.ones(3, 2).t()
        m.testing.assert_close(row_major, columns)
        m.testing.assert_close(row_major, row_major.clone(), check_stride=True)
        with pytest.raises(AssertionError) as caught:
            m.testing.assert_close(row_major, columns, check_stride=True)
        return str(caught.value)

    assert words(lucid_gpu) == words(torch_module())
