"""What nodes saved, and how they notice that it was written since.

Who saves a value keeps a `Saved`: the tensor's variable, and how often that had been written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lucid_gpu.core.node import Node
from lucid_gpu.core.program import Program, Shape
from lucid_gpu.core.value import Cell, Expr, Variable

if TYPE_CHECKING:
    from lucid_gpu.core.owner import Storage
    from lucid_gpu.tensor import Tensor


class Follows:
    """In place of a variable's storage: counts the writes of another one while that is there.

    Attributes
    ----------
    tensor : Tensor or None
        The one on that, once ``x.data = y`` gave it other memory and so another variable: backward
        reads what it has then, as in PyTorch.
    """

    __slots__ = ("find", "tensor")

    def __init__(self, find: Callable[[], Storage | None], tensor: Tensor | None = None) -> None:
        self.find, self.tensor = find, tensor

    @property
    def version(self) -> int:
        """How often that was written, 0 where it is not there."""
        return getattr(self.find(), "version", 0)

    @property
    def writer(self) -> str:
        """The op that wrote it last."""
        return getattr(self.find(), "writer", "")


def version_of(variable: Variable | Tensor) -> int:
    """How often a variable was written; or a tensor, which is one for those who keep it."""
    storage = variable._storage
    return 0 if storage is None else storage.version


class Saved:
    """What a node saved: it knows when that was written since.

    Attributes
    ----------
    program : Program
        Has the tensor's type.
    shape : tuple of int
    variable : Variable or Tensor
        The tensor itself where the node keeps that.
    version : int
        How often that had been written before.
    tensor : Tensor or None
        The tensor, if it is kept; of an output of the node, which holds that, another of its value.
    output : int or None
        Which output of the node it is.
    only : (sequence of int, Tensor) or None
        The inputs for whose gradients alone PyTorch's op saves it; others read what it had then.
    """

    __slots__ = ("only", "output", "program", "shape", "tensor", "variable", "version")

    def __init__(
        self, program: Program, shape: Shape, variable: Variable | Tensor, version: int
    ) -> None:
        self.program, self.shape, self.variable, self.version = program, shape, variable, version
        self.tensor: Any = None
        self.output: int | None = None
        self.only: tuple[Sequence[int], Tensor] | None = None

    @property
    def written(self) -> bool:
        """Whether it was written since."""
        return version_of(self.variable) != self.version

    def refusal(self, reader: Node, maker: str | None) -> RuntimeError:
        """The error of going backward now; ``maker`` names the node that it is an output of."""
        like, name = self.program, reader.name()
        storage: Any = self.variable._storage  # there is one: it was written
        which = (
            f"saved by {name}"
            if maker is None
            else f"which is output {self.output or 0} of {maker}"
        )
        return RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{like.dtype.name} tensor of shape {list(self.shape)}], {which}, is "
            f"at version {storage.version}; expected version {self.version} instead. "
            f"{storage.writer} wrote it after {name} had saved it. Write the change "
            "out of place (x = x + 1), or change a clone."
        )


class Saver(Node):
    """A node that keeps `Saved` ones.

    Attributes
    ----------
    saved : tuple
        What its gradient reads.
    also : tuple
        What it holds, or PyTorch's op saves, beside: see `lucid_gpu.fusion.saving`.
    """

    saved: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()

    def lies_in(self, before: Variable, variable: Variable) -> None:
        """Let writes to `variable` reach what was saved of `before`, whose value it has now."""
        move((*self.also, *self.saved, self.result), before, variable)


# Weak references to pending values whose tensor was written, and to what was replaced.
written_values: set[weakref.ref[Expr | Node | Variable]] = set()


def note_written(value: Expr | Node | Variable) -> None:
    """Keep `value` among the written ones while it lives."""
    written_values.add(weakref.ref(value, written_values.discard))


def variable_on(storage: Storage | Follows) -> Variable:
    """A variable whose writes a storage counts."""
    variable = Variable()
    variable._storage = storage
    return variable


def counted(value: Expr, storage: Storage) -> Variable:
    """Have the present value of a tensor on a storage be seen to be written when that counts one.

    Returns
    -------
    Variable
        The tensor's.
    """
    holder: Expr | Cell = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = holder.variable
    if variable is not None and variable._storage is None:
        variable._storage = storage
    elif variable is None or variable._storage is not storage:
        if variable is None:
            holder.version = storage.version  # other threads see a variable that has a version
        variable = Variable()  # another tensor may have this value too
        variable._storage = storage
        holder.variable = variable
    if holder is value and variable.values is None:
        variable.values = [weakref.ref(value)]
    holder.version = storage.version
    return variable


def ended(value: Expr, storage: Storage) -> Variable:
    """The variable that a tensor on a storage has after a write, which had a value of its own.

    It is another one where regions may be built on the pending value of this: they are to look.
    """
    holder: Any = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = holder.variable
    if holder is value or holder.leads:
        node = holder.node
        if node is not None and node.result is not None:
            note_written(node)
    if variable is None or variable._storage is not storage:
        return variable_on(storage)
    if variable.values is None:
        return variable
    pending = [one for r in variable.values if (one := r()) is not None]
    if not pending:
        variable.values = None
        return variable
    for one in pending:
        note_written(one)
    return variable_on(storage)


def taken(value: Expr, variable: Variable, version: int) -> None:
    """Have a value be what a tensor holds from now on, of this variable and version."""
    holder: Any = value.leaves[0] if value.program.is_load else value
    before: Variable | None = holder.variable
    holder.variable, holder.version = variable, version
    if holder is value:
        variable.values = [weakref.ref(value)]
    if before is None:
        return
    node = value.node if holder is value else holder.node if holder.leads else None
    if node is not None:
        node.lies_in(before, variable)
    if value.also:
        move(value.also, before, variable)


def move(entries: Sequence[object], before: Variable, variable: Variable) -> None:
    """Have what was saved of a value be of the variable of the tensor that holds it from now on."""
    for entry in entries:
        if type(entry) is Saved and entry.variable is before:
            entry.variable, entry.version = variable, version_of(variable)


def carry(before: Expr, value: Expr) -> None:
    """Have a value that takes another's place in a tensor be of the variable that was saved."""
    old: Expr | Cell = before.leaves[0] if before.program.is_load else before
    new: Expr | Cell = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = old.variable
    if variable is None or type(variable._storage) is Follows or new is old:
        return
    new.variable, new.version = variable, old.version
    if new is value:
        variable.values = [*(variable.values or ()), weakref.ref(value)]


def is_written(value: Expr | Cell) -> bool:
    """Whether the tensor that had this value was written in place since."""
    holder: Expr | Cell = value
    if isinstance(value, Expr) and value.program.is_load:
        holder = value.leaves[0]
    variable: Variable | None = holder.variable
    return variable is not None and version_of(variable) != holder.version


def saved(value: Expr) -> Saved:
    """What who saves a value is to keep of it, if not the value."""
    program = value.program
    holder: Expr | Cell = value.leaves[0] if program.is_load else value
    variable: Variable | None = holder.variable
    if variable is None:
        variable, holder.version = Variable(), 0
        holder.variable = variable
        if holder is value:
            variable.values = [weakref.ref(holder)]
    return Saved(program, value.shape, variable, holder.version)


def reread(value: Expr) -> Expr:
    """The same value for an op that replaces it: what that op saves stays good."""
    copy = Expr(value.program, value.leaves, value.made_by, value.shape)
    copy.node, copy.since, copy.also = value.node, value.since, value.also
    return copy
