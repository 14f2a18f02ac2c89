"""The sparse tensor: places and values, and a leaf of the graph in place of an array.

To autograd and to `Function` it is a tensor like any other. What has no sparse form refuses by
name: methods here, and functions when they ask for the array.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NoReturn

from lucid_gpu.core.node import Node, run_node
from lucid_gpu.core.owner import Storage
from lucid_gpu.core.program import SPARSE, changed_load, load_program
from lucid_gpu.core.value import Cell, Expr, give, load_as
from lucid_gpu.device import device
from lucid_gpu.fusion.building import without_grad
from lucid_gpu.ops import printing
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.in_place import LEAF_IN_PLACE
from lucid_gpu.ops.order import searchsorted
from lucid_gpu.ops.registry import LazyMethod
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.storage import sparse_coo, sparse_csr
from lucid_gpu.tape.door import NAMES, Next, Watch
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.overrides import METHODS, Method, disabled
from lucid_gpu.tensor import Tensor


class _Asked(threading.local):
    """The op that the user called on a thread, once there are sparse tensors."""

    name: str | None = None


_asked = _Asked()


class Elements:
    """What a sparse tensor holds.

    Attributes
    ----------
    pattern : Pattern
    values : Tensor, shape (elements, *dense dimensions)
        Without history: that is the sparse tensor's own.
    once : bool
        Elements at one place are one element, told several times (a gradient, which has one number
        a place); `SparseTensor.elements` settles it.
    """

    __slots__ = ("once", "pattern", "values")

    def __init__(self, pattern: Pattern, values: Tensor, once: bool = False) -> None:
        self.pattern = pattern
        self.values = values
        self.once = once

    def settle(self) -> None:
        """Keep one element a place."""
        self.once = False
        grouping = self.pattern.grouping()
        if grouping.first is not None:
            self.values = self.values.index_select(0, grouping.first)
        self.pattern = grouping.pattern


class SparseCell(Cell):
    """The leaf of a sparse tensor: where its gradient goes, and elements instead of an array."""

    def __init__(self, elements: Elements, node: Any = None, output: int = 0) -> None:
        self.elements = elements
        self.node = node
        self.output = output
        self.variable, self.version = None, 0

    @property
    def array(self) -> Any:
        pattern = self.elements.pattern
        refuse(asked_by(), pattern.device, csr=pattern.rows_in is not None)

    def twin(self, node: Any = None, output: int = 0) -> Cell:
        return SparseCell(self.elements, node, output)


def refuse(
    name: str, where: device, why: str = "it takes no sparse tensors", csr: bool = False
) -> NoReturn:
    """Raise NotImplementedError for an op that has no sparse form."""
    layout, other = ("SparseCsr", " or .to_sparse()") if csr else ("Sparse", "")
    raise NotImplementedError(
        f"Could not run '{name}' with arguments from the '{layout}{where.type.upper()}' backend: "
        f"{why}; call .to_dense(){other} first"
    )


def asked_by(otherwise: str = "this operation") -> str:
    """The op that the user called; ``otherwise`` is what asks, if no op does."""
    return _asked.name or otherwise


@cache
def _note_names() -> None:
    """Stand behind the door from the first sparse tensor on, to know who asks."""
    Watch(NAMES, lambda: _naming).__enter__()


def _naming(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Next) -> Any:
    before = _asked.name
    _asked.name = None if op is run_node else before or op.__name__.strip("_")
    try:
        return go_on(*args, **kwargs)
    finally:
        _asked.name = before


class SparseTensor(Tensor):
    """A tensor of which only the listed elements are kept, as coordinates and values.

    Made by `lucid_gpu.sparse_coo_tensor` and `Tensor.to_sparse`. Elements listed twice add up.
    """

    __torch_function__ = staticmethod(disabled)
    is_sparse = _is_sparse = True
    layout = sparse_coo

    @property
    def elements(self) -> Elements:
        """The values, shape (elements, *dense dimensions), as a tensor of the graph."""
        cell = self._expr.leaves[0]
        assert isinstance(cell, SparseCell)
        if cell.elements.once:
            cell.elements.settle()
        return cell.elements

    @property
    def pattern(self) -> Pattern:
        """Where the values stand."""
        return self.elements.pattern

    # --- as Tensor has it, without an array -------------------------------------------------------

    def _attach(self, node: Node, output: int = 0) -> None:
        leaf, program = self._expr.leaves[0].twin(node, output), self._expr.program
        load_as(self, changed_load(program, needs_grad=True), leaf)

    def detach(self) -> Tensor:
        """The same elements, apart from the graph."""
        return wrap(without_grad(self._expr), self)

    def _cut(self) -> Tensor:
        give(self, without_grad(self._expr))
        return self

    def alias(self) -> Tensor:
        """A new tensor object with the same elements and history."""
        return wrap(self._expr, self)

    def unrecorded(self) -> Tensor:
        """A gradient of these elements, in memory of its own once they are written."""
        other = super().unrecorded()
        program, cell = other._expr.program, other._expr.leaves[0]
        assert isinstance(cell, SparseCell)
        before = cell.elements
        # an expanded tensor of values, as some gradients have, cannot be written in place
        values = before.values if before.values.is_contiguous() else before.values.contiguous()
        elements = Elements(before.pattern, values.alias(), before.once)
        own = SparseCell(elements, cell.node, cell.output)
        load_as(other, changed_load(program, needs_grad=program.needs_grad), own)
        return other

    def _on(self, expr: Expr) -> SparseTensor:
        return wrap(expr, None)

    @property
    def data(self) -> Tensor:
        """The same places and elements, apart from the graph."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        refuse("setting .data", self.device, csr=not self.is_sparse)

    @property
    def nbytes(self) -> int:
        """Bytes of the values and of their places."""
        refuse("nbytes", self.device, csr=not self.is_sparse)

    def _write(self, value: Tensor, name: str) -> SparseTensor:
        """Take another's elements, as an in-place op does."""
        if self.requires_grad and state.grad and self.is_leaf:
            raise RuntimeError(f"{LEAF_IN_PLACE} {name} changes a sparse leaf.")
        if not isinstance(value, SparseTensor) or value.dtype is not self.dtype:
            raise RuntimeError(
                f"result type {value.dtype.name} of layout {value.layout} can't be cast to the "
                f"desired output type {self.dtype.name} of layout {self.layout} in {name}"
            )
        edge = self._edge() if self.requires_grad and not state.grad else None
        storage, written = self._memory(), Storage(self, ())
        written.version = storage.version + 1
        give(self, value._expr)
        self._storage = written
        if edge is not None:  # the history stays what it was
            self._attach(*edge)
        return self

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __repr__(self) -> str:
        return _text(self)

    # --- what PyTorch asks a sparse tensor --------------------------------------------------------

    def sparse_dim(self) -> int:
        """How many dimensions are listed by coordinates."""
        return self.pattern.sparse_dim

    def dense_dim(self) -> int:
        """How many dimensions each value has."""
        return len(self.pattern.dense_size)

    def is_coalesced(self) -> bool:
        """Whether every place is listed once, in order."""
        return self.pattern.coalesced

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        """Say whether every place occurs once, in order."""
        pattern = Pattern(self.pattern.indices, self.pattern.size, coalesced)
        edge = self._edge() if self.requires_grad else None
        self._write(sparse(Elements(pattern, self.elements.values.detach())), "_coalesced_")
        if edge is not None:  # the elements are the same
            self._attach(*edge)
        return self

    def _nnz(self) -> int:
        return self.pattern.count

    def _indices(self) -> Tensor:
        return self.pattern.indices.detach()

    def _values(self) -> Tensor:
        return self.elements.values.detach()

    def indices(self) -> Tensor:
        """The coordinates, shape (sparse dimensions, elements).

        Raises
        ------
        RuntimeError
            Before `coalesce`.
        """
        self._check_coalesced("indices")
        return self._indices()

    def _check_coalesced(self, what: str) -> None:
        if not self.pattern.coalesced:
            raise RuntimeError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )


class RowsTensor(SparseTensor):
    """A sparse matrix of the layout CSR: elements in the order of rows, which are shown compressed.

    Made by `lucid_gpu.sparse_csr_tensor` and `Tensor.to_sparse_csr`. Of the methods of
    `SparseTensor` it has those of products, types and devices.
    """

    is_sparse = False
    is_sparse_csr = True
    layout = sparse_csr

    def crow_indices(self) -> Tensor:
        """For each row the number of elements before it, and last the number of all."""
        ends = arange(self.shape[0] + 1, device=self.device)
        start = searchsorted(self.pattern.rows[0], ends)
        return start.to(self.pattern.rows_in)

    def col_indices(self) -> Tensor:
        """The column of each element."""
        return self.pattern.indices.detach()[1].to(self.pattern.rows_in)

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(
            "can't convert SparseCsr layout tensor to numpy. Use Tensor.to_dense() first."
        )


def sparse(elements: Elements) -> SparseTensor:
    """A sparse tensor without history."""
    values = elements.values
    size = elements.pattern.size
    program = load_program(values.dtype, size, False, False, values.device, SPARSE)
    return wrap(Expr(program, (SparseCell(elements),), None, size), None)


def wrap(expr: Expr, like: SparseTensor | None) -> SparseTensor:
    """A tensor object on a sparse value; its version counter is its values'."""
    _note_names()
    cell = expr.leaves[0]
    assert isinstance(cell, SparseCell)
    compressed = cell.elements.pattern.rows_in is not None
    tensor = object.__new__(RowsTensor if compressed else SparseTensor)
    give(tensor, expr)
    if like is not None:
        tensor._storage = like._storage
    else:
        tensor._storage = cell.elements.values._memory()
    return tensor


# Methods of Tensor that hold for sparse ones as they are: of the graph, and of types and sizes.
_OF_THE_GRAPH = frozenset(
    [
        "__array_function__",
        "__copy__",
        "__cupy_override_elementwise_kernel__",
        "__deepcopy__",
        "__format__",
        "__hash__",
        "__len__",
        "__pos__",
        "__rdivmod__",
        "as_gradient",
        "backward",
        "detach_",
        "is_inference",
        "plus",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "retain_grad",
        "unrecorded",
    ]
)
_OF_SHAPES = frozenset(
    [
        "dim",
        "element_size",
        "is_complex",
        "is_floating_point",
        "ndimension",
        "nelement",
        "numel",
        "size",
    ]
)
_OF_LAYOUTS = frozenset(["crow_indices", "col_indices", "to_sparse_coo", "to_sparse_csr"])
_OF_COO = frozenset(["coalesce", "indices", "is_coalesced"])  # others say which layout they have
_OF_PLACES = frozenset(["_coalesced_", "_full_like", "_indices", "_values"])
# What is there for compressed rows too; the rest of `SparseTensor` refuses.
_OF_BOTH = frozenset(
    [
        *("__matmul__", "__mul__", "__neg__", "__reduce_ex__", "__repr__", "__rmatmul__"),
        *("__rmul__", "alias", "bfloat16", "bool", "cdouble", "cfloat", "clone", "cpu", "cuda"),
        *("dense_dim", "detach", "double", "float", "half", "int", "long", "matmul", "mm", "mul"),
        *("mv", "neg", "short", "sparse_dim", "to", "to_dense", "to_sparse", "unrecorded"),
        *("values", "__torch_function__"),
    ]
)


def refuse_the_rest() -> None:
    """Give each method of Tensor that has no sparse form one that says so."""
    for name, method in vars(Tensor).items():
        private = name[0] == "_" and not name.endswith("__")
        kept = private or name in _OF_THE_GRAPH | _OF_SHAPES | _OF_LAYOUTS
        methods = (*METHODS, LazyMethod, Method)
        if kept or name in vars(SparseTensor) or not isinstance(method, methods):
            continue
        setattr(SparseTensor, name, _refusing(name))
    for name, method in list(vars(SparseTensor).items()):
        private = name[0] == "_" and not name.endswith("__")
        kept = name not in _OF_PLACES and (private or name in _OF_BOTH or name in vars(RowsTensor))
        if name in _OF_COO:
            setattr(RowsTensor, name, vars(Tensor)[name])
        elif not kept and type(method) in METHODS:
            setattr(RowsTensor, name, _refusing(name))
        elif name in ("T", "mT"):
            setattr(RowsTensor, name, property(_refusing(name)))


def _refusing(name: str) -> Any:
    def method(self: SparseTensor, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(asked_by(name), self.device, csr=not self.is_sparse)

    method.__qualname__ = f"SparseTensor.{name}"
    method.__doc__ = "Refused, with NotImplementedError: write ``x.to_dense()`` first."
    return method


# --- printing, in PyTorch's layout ----------------------------------------------------------------


def _text(s: SparseTensor) -> str:
    """The text of a sparse tensor: coordinates, values, size and marks, on lines of their own."""
    gap = ",\n" + " " * len(printing.OPENING)
    values = _part("values", SparseTensor._values(s))
    if isinstance(s, RowsTensor):
        parts = [_part("crow_indices", s.crow_indices()), _part("col_indices", s.col_indices())]
        return printing._with_suffixes(printing.OPENING + gap.join([*parts, values]), _suffixes(s))
    first, *others = _suffixes(s)
    text = printing.OPENING + gap.join([_part("indices", s._indices()), values, first])
    return printing._with_suffixes(text, others)


def _part(name: str, t: Tensor) -> str:
    array = t.cpu().array
    if t.dtype.compute is not t.dtype:
        array = array.astype(t.dtype.compute.numpy)
    opening = f"{name}={printing.OPENING}"
    if not array.size:
        return f"{opening}[], size={tuple(t.shape)})"
    indent = len(printing.OPENING) + len(opening)
    return f"{opening}{printing._values(array, t.dtype.category, indent)})"


def _suffixes(s: SparseTensor) -> list[str]:
    suffixes = [f"size={tuple(s.shape)}", f"nnz={s._nnz()}"]
    if s.device.type != "cpu":
        suffixes.insert(0, f"device='{s.device}'")
    if printing.shows_type(s.dtype):
        suffixes.append(f"dtype={s.dtype}")
    return [*suffixes, f"layout={s.layout}", *printing.history_of(s)]
