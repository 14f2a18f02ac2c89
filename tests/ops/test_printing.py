"""Tensors print as PyTorch's do, but for the package's name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.ops.printing import get_printoptions, printoptions
from tests.oracle import gives

CASES: dict[str, Any] = {
    "whole float": 1.0,
    "0-d": 0.1234567,
    "0-d int": 7,
    "0-d bool": True,
    "ints": [1, 20, -300],
    "bools": [[True, False], [False, True]],
    "whole floats": [1.0, 2.0, -3.0],
    "fractions": [0.5, -1.25, 3.125],
    "rounding": [0.99999, 0.00005, 1.99996],
    "wide range": [1e-5, 1.0],
    "large": [1e10, 1.0],
    "large whole": [123456789.0],
    "small": [1e-5, 2e-5],
    "thousandfold": [1.0, 1001.0],
    "more than thousandfold": [0.5, 1001.25],
    "zeros": [0.0, -0.0],
    "zero among small": [0.0, 1e-6],
    "not finite": [float("nan"), float("inf"), -float("inf"), 1.0],
    "not finite with fractions": [float("nan"), float("inf"), -1.5],
    "only not finite": [float("nan"), float("-inf")],
    "nested": [[[1.5, 2], [3, 4]], [[5, 6], [7, 8]]],
    "empty": [],
    "column": [[1.0], [2.25], [3.5]],
}
RNG = np.random.default_rng(3)
ARRAYS: dict[str, Any] = {
    "matrix": RNG.standard_normal((3, 4)).astype(np.float32),
    "long row": RNG.standard_normal(50).astype(np.float32),
    "long rows": RNG.standard_normal((2, 30)),
    "float64": RNG.standard_normal((2, 3)),
    "four dimensions": RNG.standard_normal((2, 2, 2, 3)).astype(np.float32),
    "abbreviated": np.arange(2000),
    "abbreviated matrix": RNG.standard_normal((40, 30)).astype(np.float32),
    "abbreviated in one dimension": RNG.standard_normal((2, 600)).astype(np.float32),
    "abbreviated cube": RNG.standard_normal((10, 11, 12)).astype(np.float32),
    "style of the ends only": np.array([1.0] * 10 + [0.123] + [2.0] * 1990, np.float32),
    "half": np.array([1.5, 0.1, 65504], np.float16),
    "uint8": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "int32": np.arange(3, dtype=np.int32),
    "no rows": np.zeros((0, 3), np.float32),
    "no columns of ints": np.zeros((2, 0), np.int64),
    "no float64": np.zeros(0),
    "complex": np.array([1 + 2j, 0.5 - 3.25j], np.complex64),
    "complex whole": np.array([1 + 2j, -3 - 4j], np.complex64),
    "complex 0-d": np.array(1 - 0.5j, np.complex64),
    "complex128": np.array([1e-6 + 1e6j, complex("nan"), -0.0j]),
    "complex matrix": (RNG.standard_normal((9, 9)) + 1j).astype(np.complex64),
    "strided": np.arange(12, dtype=np.float32).reshape(3, 4).T,
}


def same(make: Any, torch: Any) -> None:
    # A longer package name may send the last words to another line.
    texts = [
        re.sub(r",\s+(dtype|grad_fn|requires)", r", \1", repr(make(m))) for m in (lucid_gpu, torch)
    ]
    assert texts[0] == texts[1].replace("torch.", "lucid_gpu.")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", CASES)
def test_numbers_print_as_in_torch(name: str, torch: Any) -> None:
    same(lambda m: m.tensor(CASES[name]), torch)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_print_as_in_torch(name: str, torch: Any) -> None:
    same(lambda m: m.tensor(ARRAYS[name]), torch)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "int8", "int16", "complex128"])
def test_types_print_as_in_torch(name: str, torch: Any) -> None:
    same(lambda m: m.tensor([1.5, -2.25]).to(getattr(m, name)), torch)
    same(lambda m: m.zeros(0, 2, dtype=getattr(m, name)), torch)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2},
        {"precision": 8},
        {"sci_mode": True},
        {"sci_mode": False},
        {"linewidth": 40},
        {"linewidth": 5},
        {"threshold": 10},
        {"threshold": 10, "edgeitems": 1},
        {"profile": "short"},
        {"profile": "full"},
        {"profile": "short", "precision": 6},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["matrix", "long row", "abbreviated", "complex", "int32", "half"])
def test_options_act_as_in_torch(name: str, options: dict[str, Any], torch: Any) -> None:
    before = get_printoptions()
    try:
        with printoptions(**options):
            torch.set_printoptions(**options)
            same(lambda m: m.tensor(ARRAYS[name]), torch)
            same(lambda m: m.tensor([1.0, 2e-5, 3e7]), torch)
    finally:
        torch.set_printoptions(profile="default")
    assert get_printoptions() == before


def test_marks_of_autograd_print_as_in_torch(torch: Any) -> None:
    same(lambda m: m.ones(2, requires_grad=True), torch)
    same(lambda m: m.ones(2, requires_grad=True) * 3, torch)
    same(lambda m: m.ones(2, requires_grad=True).exp().sum(), torch)
    same(lambda m: m.ones(2, 2, requires_grad=True) @ m.ones(2, 2), torch)
    same(lambda m: (m.ones(2, requires_grad=True) * 3).detach(), torch)
    same(lambda m: m.zeros(0, 3, requires_grad=True) + 1, torch)


def test_marks_that_do_not_fit_go_to_the_next_line(torch: Any) -> None:
    for module in (lucid_gpu, torch):
        rows = repr(module.full((2, 9), 2.5, requires_grad=True) * 1.5)
        assert rows.endswith("3.7500]],\n       grad_fn=<MulBackward0>)")


def test_a_function_prints_its_own_name(torch: Any) -> None:
    def make(module: Any) -> Any:
        class Twice(module.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        return Twice.apply(module.ones(2, requires_grad=True))

    same(make, torch)
    assert repr(make(lucid_gpu)) == "tensor([2., 2.], grad_fn=<TwiceBackward>)"


def test_the_device_is_named(device: str) -> None:
    text = repr(lucid_gpu.ones(2, device=device))
    assert text == "tensor([1., 1.])" if device == "cpu" else "device='cuda:0'" in text


def test_str_is_the_repr_and_a_number_is_formatted_as_one(device: str) -> None:
    def told(m: Any, where: str) -> list[str]:
        vector, number = m.ones(2, device=where), m.tensor(2.5, device=where, requires_grad=True)
        texts = [f"{number:.3f}", f"{number}", f"{number:6}", f"{m.tensor(3, device=where):4d}"]
        assert str(vector) == repr(vector) == f"{vector}"
        with pytest.raises(TypeError, match="unsupported format string passed to Tensor"):
            format(vector, ".3f")
        return texts

    gives(["2.500", "2.5", "   2.5", "   3"], told, device)


def test_the_default_type_is_not_printed() -> None:
    assert repr(lucid_gpu.ones(2, dtype=lucid_gpu.float64)) == (
        "tensor([1., 1.], dtype=lucid_gpu.float64)"
    )
    lucid_gpu.set_default_dtype(lucid_gpu.float64)
    try:
        assert repr(lucid_gpu.ones(2)) == "tensor([1., 1.])"
        assert "float32" in repr(lucid_gpu.ones(2, dtype=lucid_gpu.float32))
    finally:
        lucid_gpu.set_default_dtype(lucid_gpu.float32)


def test_printing_a_pending_value_realizes_it() -> None:
    x = lucid_gpu.ones(2, requires_grad=True)
    y = x * 2
    assert repr(y) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
