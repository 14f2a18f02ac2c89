"""Plans for tests, built from programs without a Tensor, and both ways to run them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.core.value import Expr
from lucid_gpu.device import CPU
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import blocked
from lucid_gpu.fusion.building import build, of_constant
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.pending_reductions import Pending, plan_of, recipe_of
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.realize import plan_for
from lucid_gpu.tape.modes import OFF, RECORDED
from lucid_gpu.tensor import from_array

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++")), reason="the host executor compiles with g++, which is missing"
)


def leaf(array: Any) -> Expr:
    """The value of an array."""
    return from_array(array, dt.from_numpy_dtype(array.dtype))._expr


def full(number: Any, d: dtype, shape: tuple[int, ...]) -> Expr:
    """A value that is a number everywhere."""
    return of_constant(number, d, shape, CPU)


def op(name: str, *operands: Any, to: dtype | None = None) -> Expr:
    """A row of the table, applied."""
    return build(TABLE[name], operands, RECORDED, to, scheduled=False)


def planned(
    values: Sequence[Expr], axes: tuple[int, ...] | None = None
) -> tuple[Plan, list[Any], list[Any]]:
    """The plan of some values, its arrays and its scalars."""
    if axes is None:
        plan, leaves = plan_for(values)
    else:
        shape = values[0].shape
        kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
        recipes = [recipe_of(v, "sum", axes, kept, None) for v in values]
        plan, leaves = plan_of([Pending(*pair) for pair in zip(values, recipes, strict=True)], ())
    arrays = [leaves[load.leaf].array for load in plan.loads]
    return plan, arrays, [leaves[place].array for place, _ in plan.scalars]


def random(shape: Any, d: dtype, domain: str = "all", seed: int = 0) -> Any:
    """Random elements in an op's domain."""
    rng = np.random.default_rng(seed)
    if d.category == 0:
        return rng.integers(0, 2, shape).astype(bool)
    if d.category == 1:
        low = -20 if d.is_signed and domain == "all" else 1
        return rng.integers(low, 20, shape).astype(d.numpy)
    bounds = {"all": (-3, 3), "positive": (0.1, 3), "unit": (-0.9, 0.9), "above_one": (1.1, 3)}
    bounds["share"] = (0.05, 0.95)
    values = rng.uniform(*bounds[domain], shape)
    if d.category == 3:
        values = values + 1j * rng.uniform(*bounds[domain], shape)
    return np.asarray(values).astype(d.numpy)


# --- the op table -------------------------------------------------------------------------------


def takes(row: Op, d: dtype) -> bool:
    """Do the typing rules and NumPy both know this row for operands of this type?"""
    try:
        value = apply(row, d, (3,))
        plan, arrays, scalars = planned([value])
        blocked.Executable(plan)(arrays, scalars)
    except (TypeError, RuntimeError, ValueError):
        return False
    return True


def operands_of(row: Op, d: dtype, shape: Any) -> list[Any]:
    """Random arrays for each operand of a row."""
    types = [d] * row.arity
    if row.rule == "select":
        types[0] = dt.bool
    domain = "positive" if row.name.endswith("shift") else row.domain
    return [random(shape, t, domain, seed) for seed, t in enumerate(types)]


def apply(row: Op, d: dtype, shape: Any, arrays: list[Any] | None = None) -> Expr:
    """A row applied to arrays; `cast` and `identity` are told what to make."""
    operands = [leaf(a) for a in arrays or operands_of(row, d, shape)]
    to = dt.float32 if row.name == "cast" else None
    at = operands[0].shape if row.name == "identity" else None
    return build(row, operands, OFF, to, at)


def rows_for(d: dtype) -> list[Op]:
    """The rows of the table that take a type."""
    return [row for row in TABLE.values() if takes(row, d)]


# --- comparing ----------------------------------------------------------------------------------

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "complex64": 2e-5,
              "float64": 1e-14, "complex128": 1e-13}  # fmt: skip


def agree(found: Any, wanted: Any, what: str = "") -> None:
    """Two arrays of one type, equal but for the rounding of another library's functions."""
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, what
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, what)
        return
    tolerance = TOLERANCES[found.dtype.name]
    if found.dtype.itemsize == 2:
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=what)
