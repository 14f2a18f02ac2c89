"""Random programs of operators with numbers of Python and NumPy, in place and not, beside torch.

NumPy's bools and complex numbers, and its arrays, mean other things to PyTorch: see docs/numpy.md.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from typing import Any

import numpy as np
import pytest

from tests.oracle import gives, modules, refuses, torch_module

SEEDS = math.ceil(200 * float(os.environ.get("LUCID_TEST_EXAMPLES", "1")))
BOTH = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
IN_PLACE = [f"i{name}" for name in BOTH]
METHODS = ("add_", "sub_", "mul_", "div_", "remainder_", "fmod_", "clamp_min_", "pow_", "fill_")
NUMBERS: tuple[Any, ...] = (
    2, 3, -1, 0.5, -1.5, 2.0, True,
    np.float32(0.75), np.float64(-1.25), np.float16(1.5), np.int64(3), np.int32(-2), np.uint8(2),
)  # fmt: skip
TYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")


def step(rng: np.random.Generator) -> tuple[str, Any, int]:
    """An op, its number, and whether it is in place, in a view, or has the number first."""
    kind = int(rng.integers(0, 4))
    # as a ufunc, a number of NumPy's that is divided gives 0 for a zero, as NumPy does
    names = (BOTH, IN_PLACE, METHODS, ("add", "sub", "mul", "truediv", "pow"))[kind]
    name, number = str(rng.choice(names)), NUMBERS[int(rng.integers(0, len(NUMBERS)))]
    # to PyTorch a power of bools by True is a copy
    return name, 2 if number is True and "pow" in name else number, kind


def outcome(module: Any, where: str, seed: int) -> list[Any]:
    """What each step leaves: type and values, or the kind of error."""
    rng = np.random.default_rng(seed)
    kind = getattr(module, str(rng.choice(TYPES)))
    x = module.tensor([[1.0, 2.0, 3.0], [0.0, 5.0, 2.0]], device=where).to(kind)
    found: list[Any] = []
    for _ in range(8):
        name, number, kind_of_step = step(rng)
        view = bool(rng.integers(0, 3) == 0)
        target = x[:, 1:] if view else x
        try:
            if kind_of_step == 2:
                getattr(target, name)(number)
            elif kind_of_step == 1:
                target = getattr(operator, name)(target, number)
            elif kind_of_step == 0:
                x = getattr(operator, name)(target, number)
            else:
                # a number of NumPy's comes first: it asks the tensor, as a ufunc
                x = getattr(operator, name)(number, target)
        except (RuntimeError, TypeError, NotImplementedError, ZeroDivisionError):
            found.append((name, repr(number), "refused"))
            continue
        if x.ndim == 2 and x.shape[1] < 2:
            x = module.cat([x, x], 1)
        described = str(x.dtype).rpartition(".")[2]
        found.append((name, repr(number), described, x.tolist()))
    return found


def same(mine: Any, theirs: Any) -> bool:
    if mine[:3] != theirs[:3]:
        return False
    if mine[2] == "refused":
        return True
    rtol = 5e-3 if mine[2] == "float16" else 1e-5
    return np.allclose(mine[3], theirs[3], rtol=rtol, atol=rtol, equal_nan=True)


def test_random_programs(device: str) -> None:
    torch_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEEDS):
            mine, theirs = (outcome(m, where, seed) for m, where in modules(device))
            for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                assert same(a, b), f"seed {seed}, step {number}: {a}, torch {b}"


ZEROS = (0, False, np.int64(0), np.uint8(0))
DIVISIONS = {
    "//": operator.floordiv,
    "%": operator.mod,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "fmod": lambda x, n: x.fmod(n),
    "fmod_": lambda x, n: x.fmod_(n),
    "remainder_": lambda x, n: x.remainder_(n),
}


@pytest.mark.parametrize("zero", ZEROS, ids=lambda z: f"{type(z).__name__}")
@pytest.mark.parametrize("name", DIVISIONS)
def test_whole_numbers_divided_by_a_zero_of_any_kind(name: str, zero: Any) -> None:
    """Where the CPU looks: as in torch 2.13."""
    refuses(
        RuntimeError,
        "ZeroDivisionError",
        lambda m, where: DIVISIONS[name](m.tensor([1, 2]), zero),
    )
    gives([True], lambda m, where: [not DIVISIONS[name](m.tensor([1.5]), zero).isfinite().item()])


FILLS: dict[str, Any] = {
    "fill_": lambda m, d, v, w: m.zeros(2, dtype=getattr(m, d), device=w).fill_(v),
    "full": lambda m, d, v, w: m.full((2,), v, dtype=getattr(m, d), device=w),
    "masked_fill": lambda m, d, v, w: m.zeros(2, dtype=getattr(m, d), device=w).masked_fill(
        m.ones(2, device=w).bool(), v
    ),
    "index_fill": lambda m, d, v, w: m.zeros(2, dtype=getattr(m, d), device=w).index_fill(
        0, m.tensor([0, 1], device=w), v
    ),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize(
    ("d", "value"),
    [
        ("uint8", -0.5),
        ("uint8", -1.25),
        ("uint8", np.int64(300)),
        ("int8", np.int64(300)),
        ("int32", np.float32(1e10)),
        ("int64", math.nan),
        ("float32", 1e300),
        ("float32", np.float64(-1e300)),
    ],
)
def test_a_number_that_a_type_does_not_hold(name: str, d: str, value: Any, device: str) -> None:
    words = "without overflow"
    refuses(RuntimeError, words, lambda m, w: FILLS[name](m, d, value, w), device)


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize(
    ("d", "value", "expected"),
    [
        ("uint8", -1, 255),
        ("uint8", np.int64(-1), 255),
        ("uint8", 255.5, None),
        ("float16", math.inf, math.inf),
        ("float32", np.float32(-math.inf), -math.inf),
        ("float64", 1e300, 1e300),
        ("bfloat16", 2**63, 2.0**63),
    ],
)
def test_a_number_that_a_type_holds(
    name: str, d: str, value: Any, expected: Any, device: str
) -> None:
    if expected is None:
        words = "without overflow"
        refuses(RuntimeError, words, lambda m, w: FILLS[name](m, d, value, w), device)
    else:
        gives([expected] * 2, lambda m, w: FILLS[name](m, d, value, w), device)


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_a_masks_number_beyond_16_bits(d: str, device: str) -> None:
    words = "without overflow"
    refuses(RuntimeError, words, lambda m, w: FILLS["masked_fill"](m, d, 1e39, w), device)


def test_a_bound_of_numpys_that_a_type_does_not_hold(device: str) -> None:
    def scenario(module: Any, where: str) -> Any:
        return module.zeros(2, dtype=module.uint8, device=where).clamp(min=np.int64(300))

    refuses(RuntimeError, "without overflow", scenario, device)
