"""What realizing some tensors would run, without running it.

A kernel's boundary is where a value has to exist in memory: arrays it was given, results of ops
that are not elementwise, values already realized. `explain` says which it is for each array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu.core.value import Cell
from lucid_gpu.fusion.pending_reductions import would_run
from lucid_gpu.fusion.plan import Load, Plan, Store
from lucid_gpu.fusion.realize import plan_for, source_of
from lucid_gpu.launch.observers import Launched, Operand

__all__ = ["Explanation", "Kernel", "explain"]


class Kernel:
    """One kernel: what it computes and what it moves.

    Attributes
    ----------
    name : str
        The name profilers show.
    ops : tuple of str
        Rows of the op table it computes, in order; none for a hand-written kernel.
    bytes_read, bytes_written : int
        Bytes of the arrays it loads and stores, each counted once.
    shape : tuple of int
        The iteration space; of a hand-written kernel, the first array it writes.
    device : device
    inputs, outputs : tuple of str
        A line about each array read and written.
    """

    def __init__(
        self,
        plan: Plan | Launched,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.ops = plan.ops
        self.bytes_read = plan.bytes_read
        self.bytes_written = plan.bytes_written
        self.shape = plan.shape
        self.device = plan.device
        loads: Sequence[Any] = plan.all_loads if isinstance(plan, Plan) else plan.loads
        stores: Sequence[Any] = plan.all_stores if isinstance(plan, Plan) else plan.stores
        self.inputs = tuple(inputs or [_array(load) for load in loads])
        self.outputs = tuple(outputs or [_array(store) for store in stores])

    @property
    def source(self) -> str:
        """The code: CUDA C for a GPU, a Python function for the CPU."""
        return self.plan.source if isinstance(self.plan, Launched) else source_of(self.plan)

    def __repr__(self) -> str:
        return (
            f"<kernel {self.name} on {self.device}: shape {list(self.shape)}, "
            f"reads {self.bytes_read} bytes, writes {self.bytes_written} bytes>"
        )

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.device}, shape {list(self.shape)}"]
        if isinstance(self.plan, Plan):
            lines.append("  ops: " + (", ".join(self.ops) or "none, a copy"))
        lines += _listed(f"reads {self.bytes_read} bytes", self.inputs)
        lines += _listed(f"writes {self.bytes_written} bytes", self.outputs)
        if self.plan.reduction is not None:
            axes = list(self.plan.reduction.axes)
            lines.append(f"  reduces dimensions {axes}: the values reduced are not stored")
        return "\n".join(lines)


def _listed(head: str, lines: Sequence[str]) -> list[str]:
    return [f"  {head}" + (":" if lines else ""), *[f"    {line}" for line in lines]]


def _array(array: Load | Store | Operand) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


class Explanation:
    """The kernels that realizing some tensors would run.

    Attributes
    ----------
    kernels : list of Kernel
        In the order in which they would run; none for realized tensors.
    realized : list of int
        Positions of the tensors that need no kernel.
    """

    def __init__(self, kernels: list[Kernel], realized: list[int]) -> None:
        self.kernels = kernels
        self.realized = realized

    @property
    def bytes_read(self) -> int:
        return sum(k.bytes_read for k in self.kernels)

    @property
    def bytes_written(self) -> int:
        return sum(k.bytes_written for k in self.kernels)

    @property
    def source(self) -> str:
        """The code of all kernels."""
        return "\n".join(k.source for k in self.kernels)

    def __str__(self) -> str:
        count = len(self.kernels)
        lines = [
            f"{count} kernel{'s' * (count != 1)}, reading {self.bytes_read} bytes and writing "
            f"{self.bytes_written} bytes"
        ]
        lines += [f"tensor {i} is already realized: no kernel" for i in self.realized]
        lines += [f"kernel {i}: {kernel}" for i, kernel in enumerate(self.kernels, 1)]
        return "\n".join(lines)

    __repr__ = __str__


def explain(*tensors: Any) -> Explanation:
    """Say which kernels would compute tensors, and why they begin and end where they do.

    Nothing is computed.

    Parameters
    ----------
    *tensors : Tensor
        Pending or realized.

    Returns
    -------
    Explanation
        Its ``kernels`` have ``name``, ``ops``, ``bytes_read``, ``bytes_written`` and ``source``.

    Raises
    ------
    TypeError
        For anything but a tensor.
    """
    for i, t in enumerate(tensors):
        if not hasattr(t, "_expr"):
            raise TypeError(f"explain() takes tensors; argument {i} is of type {type(t).__name__}")
    names = {id(t): f"tensor {i}" for i, t in reversed(list(enumerate(tensors)))}
    kernels: list[Kernel] = []
    done: set[int] = set()
    realized = []
    for i, tensor in enumerate(tensors):
        if tensor._expr.program.is_load and tensor._expr.leaves[0].source is None:
            realized.append(i)
        elif id(tensor) not in done:
            members = realized_together(tensor)
            done.update(id(other) for m in members for other in (m, *_aliases(m)))
            kernels += _kernels(members, names, first=not kernels)
    return Explanation(kernels, realized)


def _kernels(members: Sequence[Any], names: dict[int, str], first: bool) -> list[Kernel]:
    """What realizing some tensors runs: the first kernel takes along all that wait."""
    values = [m._expr for m in members if not m._expr.program.is_load]
    before, beside = would_run(values)
    kernels = [_kernel(plan, leaves, {}) for plan, leaves in before] if first else []
    if values:
        plan, leaves = beside or plan_for(values)
        skipped = 0 if plan.wholes else len(plan.all_stores) - len(members)
        at = {
            skipped + i: names.get(id(m), "realized together with it")
            for i, m in enumerate(members)
        }
        kernels.append(_kernel(plan, leaves, at))
    return kernels


def realized_together(tensor: Any) -> list[Any]:
    """The pending tensors that one kernel computes when ``tensor`` is realized."""
    members = [tensor]
    for reference in getattr(tensor, "_siblings", None) or ():
        other = reference()
        if other is None or other is tensor:
            continue
        theirs = other._expr
        if not theirs.program.is_load and theirs.shape == tensor._expr.shape:
            members.append(other)
    return members


def _aliases(tensor: Any) -> Iterator[Any]:
    """Pending tensors on the same memory, which get the same array (`detach`)."""
    storage = getattr(tensor, "_storage", None)
    if storage is not None:
        yield from (t for t in storage.others(tensor) if not t._expr.program.is_load)


def _kernel(plan: Plan, leaves: Sequence[Cell], names: dict[int, str]) -> Kernel:
    inputs = [
        f"{_array(load)}{_layout(load, plan)}: {origin(leaves[load.leaf])}"
        for load in plan.all_loads
    ]
    outputs = [
        f"{_array(store)}: {names.get(i, 'a reduction, for later use')}"
        for i, store in enumerate(plan.all_stores)
    ]
    return Kernel(plan, inputs, outputs)


def _layout(load: Load, plan: Plan) -> str:
    layout = "" if load.strides is None else " strided"
    return layout + ("" if load.shape == plan.shape else " broadcast")


def origin(cell: Cell) -> str:
    """Why a kernel reads an array: where it comes from."""
    node = cell.node
    if node is None:
        return "input, or computed before"
    if not node._edges:
        return "input: a leaf that requires grad"
    return f"already realized: the result of {node.name()}"
