"""Element types: PyTorch's names, promotion and conversions."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.dtypes import ALL, BY_NAME
from tests.oracle import modules, torch_module

NAMES = list(BY_NAME)
NUMBERS: list[Any] = [True, 2, 2.5, 1 + 2j]
NO_COMPLEX32 = ("complex32", "complex64")  # NumPy has no pairs of halves


def name_of(d: Any) -> str:
    return str(d).split(".")[1]


def made(module: Any, name: str, dim: int) -> Any:
    return module.ones([2] * dim, dtype=getattr(module, name))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dims", [(1, 1), (1, 0), (0, 1), (0, 0)], ids=str)
def test_every_pair_of_types_promotes_as_in_torch(dims: tuple[int, int]) -> None:
    torch = torch_module()
    for a, b in itertools.product(NAMES, NAMES):
        got = made(lucid_gpu, a, dims[0]) * made(lucid_gpu, b, dims[1])
        expected = made(torch, a, dims[0]) * made(torch, b, dims[1])
        assert got.dtype.name == name_of(expected.dtype).replace(*NO_COMPLEX32), (a, b, dims)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dim", [0, 1])
def test_every_type_promotes_with_python_numbers_as_in_torch(dim: int) -> None:
    torch = torch_module()
    for a, number in itertools.product(NAMES, NUMBERS):
        for operator in (lambda x, n: x * n, lambda x, n: n * x, lambda x, n: x == n):
            got = operator(made(lucid_gpu, a, dim), number).dtype
            expected = name_of(operator(made(torch, a, dim), number).dtype)
            assert got.name == expected.replace(*NO_COMPLEX32), (a, number, dim)


def test_division_gives_floats_as_in_torch() -> None:
    torch = torch_module()
    for a, b in itertools.product(NAMES, NAMES):
        got, expected = (made(m, a, 1) / made(m, b, 1) for m in (lucid_gpu, torch))
        assert got.dtype.name == name_of(expected.dtype), (a, b)


def test_result_type_and_promote_types() -> None:
    torch = torch_module()
    for a, b in itertools.product(NAMES, NAMES):
        got = lucid_gpu.promote_types(getattr(lucid_gpu, a), getattr(lucid_gpu, b))
        expected = name_of(torch.promote_types(getattr(torch, a), getattr(torch, b)))
        assert got.name == expected
    for a, number in itertools.product(NAMES, NUMBERS):
        got = lucid_gpu.result_type(made(lucid_gpu, a, 1), number)
        expected = name_of(torch.result_type(made(torch, a, 1), number))
        assert got.name == expected.replace(*NO_COMPLEX32)


def test_the_default_type_acts_as_in_torch() -> None:
    torch = torch_module()
    whole = lucid_gpu.arange(3)
    assert (whole / 2).dtype is whole.exp().dtype is lucid_gpu.float32
    for module in (lucid_gpu, torch):
        module.set_default_dtype(module.float64)
    try:
        assert (whole / 2).dtype is whole.exp().dtype is lucid_gpu.float64
        for make in (
            lambda m: m.tensor([1.5]),
            lambda m: m.tensor(1j),
            lambda m: m.arange(3) / 2,
            lambda m: m.arange(3) * 0.5,
            lambda m: m.zeros(2),
            lambda m: m.arange(0.0, 1.0, 0.5),
            lambda m: m.ones(2, dtype=m.int32).exp(),
            lambda m: m.rand(2),
        ):
            assert make(lucid_gpu).dtype.name == name_of(make(torch).dtype)
    finally:
        for module in (lucid_gpu, torch):
            module.set_default_dtype(module.float32)
    with pytest.raises(TypeError, match="only floating-point types are supported as the default"):
        lucid_gpu.set_default_dtype(lucid_gpu.int64)


SOURCES = {
    "float64": [0.0, -1.5, 1.5, 2.5, 1e10, -300.7, 65520.0, 1e-8],
    "int64": [0, 1, -1, 127, 128, 255, 256, 40000],
    "bool": [True, False],
    "complex128": [1 + 2j, -0.5j],
    "float16": [0.1, -2.5, 65504.0],
}


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", NAMES)
def test_casts_agree_with_torch(source: str, target: str, device: str) -> None:
    torch = torch_module()
    values = SOURCES[source]
    if source in ("float64", "float16") and target in ("uint8", "int8", "int16", "int32"):
        values = [v for v in values if 0 <= v < 100]  # what lies outside is undefined in C
    with np.errstate(all="ignore"):
        got, expected = (
            m.tensor(values, dtype=getattr(m, source)).to(d).to(getattr(m, target))
            for m, d in ((lucid_gpu, device), (torch, "cpu"))
        )
    assert got.dtype.name == target
    assert got.tolist() == expected.tolist()


def test_conversion_methods_give_their_type() -> None:
    t = lucid_gpu.ones(2)
    for name, d in (
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        ("short", "int16"),
        ("int", "int32"),
        ("long", "int64"),
        ("bool", "bool"),
        ("bfloat16", "bfloat16"),
        ("cfloat", "complex64"),
        ("cdouble", "complex128"),
    ):
        assert getattr(t, name)().dtype.name == d
    assert t.float() is t
    assert t.type_as(lucid_gpu.ones(1, dtype=lucid_gpu.int8)).dtype is lucid_gpu.int8


def test_casts_have_gradients(device: str) -> None:
    x = lucid_gpu.tensor([1.5, 2.5], device=device, requires_grad=True)
    y = x.double() * 2 + x.half()
    y.sum().backward()
    assert x.grad.dtype is lucid_gpu.float32
    assert x.grad.tolist() == [3.0, 3.0]
    assert not x.long().requires_grad


def test_types_are_objects_of_their_own() -> None:
    for d in ALL:
        assert pickle.loads(pickle.dumps(d)) is d
        assert copy.deepcopy(d) is d
        assert repr(d) == f"lucid_gpu.{d.name}"
        assert getattr(lucid_gpu, d.name) is d
    assert lucid_gpu.float is lucid_gpu.float32
    assert lucid_gpu.float32.is_floating_point and not lucid_gpu.int8.is_floating_point
    assert lucid_gpu.complex64.is_complex and lucid_gpu.int8.is_signed
    assert lucid_gpu.bfloat16.itemsize == 2


def test_python_and_numpy_types_are_understood() -> None:
    for given, d in (
        (float, lucid_gpu.float64),  # as PyTorch reads it, whatever the default
        (int, lucid_gpu.int64),
        (bool, lucid_gpu.bool),
        (complex, lucid_gpu.complex128),
        (np.float64, lucid_gpu.float64),
        (np.dtype("int16"), lucid_gpu.int16),
    ):
        assert lucid_gpu.zeros(1, dtype=given).dtype is d
    with pytest.raises(TypeError, match="dtype must be a lucid_gpu.dtype such as"):
        lucid_gpu.zeros(1, dtype=3)
    with pytest.raises(TypeError, match="supported types are: bool, uint8"):
        lucid_gpu.from_numpy(np.zeros(2, np.uint16))


def test_first_names_of_types() -> None:
    assert lucid_gpu.chalf is lucid_gpu.complex32
    assert lucid_gpu.Storage is lucid_gpu.FloatStorage


def test_limits_are_equal_for_the_same_type() -> None:
    assert lucid_gpu.finfo() == lucid_gpu.finfo(lucid_gpu.float32)
    assert lucid_gpu.finfo(lucid_gpu.float64) != lucid_gpu.finfo(lucid_gpu.float32)
    assert lucid_gpu.finfo(lucid_gpu.complex64) == lucid_gpu.finfo()
    assert lucid_gpu.iinfo(lucid_gpu.int8) == lucid_gpu.iinfo(lucid_gpu.int8)
    assert lucid_gpu.iinfo(lucid_gpu.int8) != lucid_gpu.iinfo(lucid_gpu.uint8)
    assert lucid_gpu.iinfo(lucid_gpu.int8) != "int8"


TAKING_A_TYPE = {
    "zeros": lambda m, x, d: m.zeros(2, dtype=d),
    "tensor": lambda m, x, d: m.tensor(1, dtype=d),
    "as_tensor": lambda m, x, d: m.as_tensor([1.0], dtype=d),
    "arange": lambda m, x, d: m.arange(3, dtype=d),
    "rand": lambda m, x, d: m.rand(2, dtype=d),
    "zeros_like": lambda m, x, d: m.zeros_like(x, dtype=d),
    "new_zeros": lambda m, x, d: x.new_zeros(2, dtype=d),
    "to": lambda m, x, d: x.to(dtype=d),
    "sum": lambda m, x, d: x.sum(dtype=d),
    "cumsum": lambda m, x, d: x.cumsum(0, dtype=d),
    "softmax": lambda m, x, d: x.softmax(0, dtype=d),
    "norm": lambda m, x, d: m.norm(x, dtype=d),
    "layer": lambda m, x, d: m.nn.Linear(2, 2, dtype=d),
    "default": lambda m, x, d: m.set_default_dtype(d),
    "finfo": lambda m, x, d: m.finfo(d),
    "can_cast": lambda m, x, d: m.can_cast(d, m.int32),
    "promote_types": lambda m, x, d: m.promote_types(d, m.float32),
}


@pytest.mark.parametrize("name", TAKING_A_TYPE)
@pytest.mark.parametrize("text", ["float", "float32", "half", "f4"])
def test_names_of_types_are_refused(name: str, text: str) -> None:
    """NumPy's float is 64 bits, PyTorch's 32."""
    for m, _ in modules():
        with pytest.raises(TypeError):
            TAKING_A_TYPE[name](m, m.ones(2), text)
