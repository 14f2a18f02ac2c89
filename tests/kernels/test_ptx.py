"""What NVRTC makes of kernels: no doubles where none are asked for, no local memory, wide accesses.

PTX is looked at, which is the same for every GPU of a generation; what ptxas adds, spilled
registers above all, `test_compiling` sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import Instruction
from lucid_gpu.device import CPU, device
from lucid_gpu.fusion import op_kernels
from lucid_gpu.fusion.building import drawn
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import work_of
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.plan import Load, Plan, Reduction, Store
from lucid_gpu.fusion.realize import plan_for
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS
from lucid_gpu.launch.nvrtc import GENERATED
from lucid_gpu.tensor import apply
from tests.slow import slow_but

from .compiling import Instance, instances, instructions

ARCHITECTURE = 90
TYPES = (dt.float32, dt.float16, dt.bfloat16)

# The only ops of floats whose kernels name doubles or local memory, and why.
EXCEPTIONS = dict.fromkeys(
    ("sin", "cos", "tan"),
    "CUDA reduces angles from 105615 on by many digits of 2 / pi, which lie in local memory, and by"
    " one product of doubles; no float alone is right there, and smaller angles do not get there",
)


class Generated(NamedTuple):
    """A generated kernel, and the ops it computes."""

    label: str
    source: str
    ops: frozenset[str]
    wide: bool  # some array moves by 16 bytes


INSTANCES = list(instances())
FIRST = {i.family: i for i in reversed(INSTANCES)}.values()


@pytest.mark.parametrize("instance", slow_but(INSTANCES, *FIRST), ids=[i.label for i in INSTANCES])
def test_instances(instance: Instance) -> None:
    """A width of 16 bytes is loaded by one instruction, and stored by one where it is stored."""
    found = instructions(instance.kernel.instance(**instance.template).source, ARCHITECTURE)
    if dt.float64 not in instance.template.values():
        assert not found.doubles
    assert not found.local
    element = instance.template.get("T") or instance.template.get("From")
    width = instance.template.get("WIDTH") or instance.template.get("W") or 1
    if element is not None and element.itemsize * width == 16:
        assert found.wide_loads
        stored = re.search(r"(?<!const )\b(?:T|To)\* ", instance.kernel.declaration)
        template = instance.template
        few = template.get("TOTALS") or not template.get("GRADIENT", True)  # numbers are stored
        if stored and not few:
            assert found.wide_stores


# --- generated kernels ---------------------------------------------------------------------------


def kernels_of(plan: Plan) -> Iterator[Generated]:
    work = work_of(plan)
    ops = frozenset([i.op for i in plan.instructions])
    made = elementwise(work, 132) if work.fold is None else reduction(work)
    yield Generated(made.name, made.source, ops, 16 in made.aligned)


def of_row(row: Op, d: dt.dtype) -> Iterator[Generated]:
    """A kernel of a row, and one of its gradients, for arrays of a type."""
    if row.rule == "draw":
        kind = dt.int64 if row.name == "random_below" else d.compute
        numbers = (1,) * (row.name in ("random_uniform", "random_below"))
        numbers += (1.0,) * (row.arity - 3 - len(numbers))
        yield from kernels_of(plan_for([drawn(row, kind, (1 << 12,), CPU, (1, 2), numbers)])[0])
        return
    types = [d] * row.arity
    if row.rule == "select":
        types[0] = dt.bool
    given = [lucid_gpu.ones(1 << 12, dtype=t) for t in types]
    leaves = [t.requires_grad_() for t in given if t.dtype is d] if row.differentiable else []
    try:
        y = apply(row, *given, **({"to": dt.int32} if row.name == "cast" else {}))
    except (TypeError, RuntimeError):  # not of floats
        return
    yield from kernels_of(plan_for([y._expr])[0])
    if y.requires_grad:
        g = lucid_gpu.full_like(y, 2.0).clone()
        found = lucid_gpu.autograd.grad(y, leaves, g, allow_unused=True)
        pending = [t._expr for t in found if t is not None and not t._expr.program.is_load]
        if pending:
            yield from kernels_of(plan_for(pending)[0])


def of_reduction(name: str, d: dt.dtype) -> Iterator[Generated]:
    row = REDUCTIONS[name]
    to = dt.bool if row.ufunc in ("logical_or", "logical_and") else d.compute
    for shape, axes in op_kernels.SUMMED:
        kept = tuple([n for i, n in enumerate(shape) if i not in axes])
        taken = [Instruction("load", (), d, shape, False, 0)]
        if d is not to:
            taken.append(Instruction("cast", (0,), to, shape, False))
        yield from kernels_of(
            Plan.part(
                device("cuda", 0), shape, taken,
                [Store(len(taken) - 1, kind, kept, i) for i, kind in enumerate(row.types(to))],
                loads=[Load(0, d, shape, None)], divisors=(1 if row.divides else None,),
                reduction=Reduction(axes, (name,), (kept,)),
            )
        )  # fmt: skip


def check(kernel: Generated) -> None:
    found = instructions(kernel.source, ARCHITECTURE, GENERATED)
    told = f"{kernel.label}: {found}\n{kernel.source}"
    assert not re.search(r"\bdouble\b", kernel.source), told
    if not kernel.ops & set(EXCEPTIONS):
        assert not found.doubles and not found.local, told
    assert not kernel.wide or found.wide_loads or found.wide_stores, told


@pytest.mark.each_value
@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", slow_but(TABLE, "add", "tanh", "random_exponential"))
def test_rows_and_their_gradients(name: str, d: dt.dtype) -> None:
    for kernel in of_row(TABLE[name], d):
        check(kernel)


@pytest.mark.each_value
@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", slow_but(REDUCTIONS, "sum", "var"))
def test_reductions(name: str, d: dt.dtype) -> None:
    for kernel in of_reduction(name, d):
        check(kernel)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_are_needed(name: str) -> None:
    kernel = next(of_row(TABLE[name], dt.float32))
    found = instructions(kernel.source, ARCHITECTURE, GENERATED)
    assert found.doubles and found.local
