"""Tensor: a value, pending or realized, with PyTorch's methods.

What is here is what only the class can do: building elementwise ops without delay, realizing them,
lending memory, and autograd's marks. `lucid_gpu.ops` and `lucid_gpu.autograd` attach the other
methods: ops by family, in-place writes, copies, hooks.
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.core import layout as memory_layout
from lucid_gpu.core import node as nodes
from lucid_gpu.core import saved
from lucid_gpu.core.node import (
    FOLLOWS,
    UNMARKED,
    AccumulateGrad,
    Node,
    Refitted,
    RemovableHandle,
    new_grad,
)
from lucid_gpu.core.owner import CONJUGATED, SameMemory, Storage, owner_of
from lucid_gpu.core.planning import steps
from lucid_gpu.core.program import (
    FORBIDDEN,
    INFERENCE,
    SHARED,
    SPARSE,
    WRAPPED,
    Program,
    Shape,
    changed_load,
    derived,
    load_program,
    marked,
    spend,
    when_forgotten,
)
from lucid_gpu.core.saved import Follows, counted
from lucid_gpu.core.value import (
    ALWAYS,
    COMPUTED,
    LEAF_WRITTEN,
    Cell,
    Expr,
    Unread,
    Variable,
    give,
    load_as,
    mark_of,
    order_of,
    strides_of,
)
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, backend_of_array, on_gpu_of
from lucid_gpu.devices.copies import duplicate, inverse, laid_in, row_major, write
from lucid_gpu.devices.port import READ_ONCE
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import Eager as _Eager
from lucid_gpu.fusion import building, pending_reductions, region, scheduler
from lucid_gpu.fusion.building import set_apart
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.pending_reductions import reread, set_aside
from lucid_gpu.fusion.realize import realize
from lucid_gpu.fusion.scheduler import waiting
from lucid_gpu.launch.observers import observers
from lucid_gpu.storage import Size, strided
from lucid_gpu.storage import layout as Layout
from lucid_gpu.tape import door, modes, overrides, watched
from lucid_gpu.tape.door import require_kind, type_name
from lucid_gpu.tape.levels import MARKED_INSIDE, innermost, open_levels
from lucid_gpu.tape.modes import WATCHED, is_inference_mode_enabled, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.overrides import fields

_size: Any = tuple.__new__  # a Size of a shape that is known to be one
_new = object.__new__
T = TypeVar("T", bound="Tensor")
_ROWS = 64  # that iteration makes at once
# None, but for programs with streams: what notes each new tensor and each in-place write, and
# computes pending values in the order of the streams they were written under (`cuda.pending`).
_streams: Any = None


class _UfuncAnswer:
    """`Tensor.__array_ufunc__`: what NumPy finds on the class and calls with a tensor first.

    On a tensor it is None: there CuPy looks for it, and leaves operators with an array on the left
    to the tensor's own. Elsewhere it would take the tensor for an array without a gradient. A class
    with an answer of its own finds Tensor's as ``super().__array_ufunc__``.
    """

    def __get__(self, tensor: Tensor | None, owner: type[Tensor]) -> Any:
        answer = Tensor._array_ufunc
        if tensor is None:
            return answer
        if type(tensor).__array_ufunc__ is answer:
            return None
        return functools.partial(answer, tensor)


class Tensor(overrides.Fields):
    """An array that records the operations applied to it.

    Make one with `lucid_gpu.tensor`, `lucid_gpu.zeros` or another creation function.

    Attributes
    ----------
    shape : Size
    dtype : dtype
    device : device
    requires_grad : bool
    grad : Tensor or None
    grad_fn : Node or None
    """

    __slots__ = ("_expr",)
    _expr: Expr
    _storage: Storage | None = None  # set once somebody views, detaches, writes or takes the memory
    _siblings: list[Any] | None = None  # weak references to what is realized together with this
    _base: Tensor | None = None  # what this is a view of; never itself a view
    _steps: tuple[Any, ...] = ()  # how it is made from that: (earlier steps, (function, arguments))
    _creation: str | None = None  # why a view must not be written: see `ops.views`
    _left: tuple[weakref.ref[Node], int] | None = None  # the edge that `detach_` cut
    _since = 0  # how often the memory of a view had been written when the view was made
    _recorded = 0  # the number of the last write that gave the views of a base another history
    _stream = 0  # the address of the stream a pending value belongs to; 0 for the default stream
    is_sparse = False
    _is_sparse = False  # has no array; `is_sparse` is PyTorch's name for the layout COO alone
    # What no tensor is here; packages written for other devices ask.
    is_ipu = is_maia = is_mkldnn = is_mps = is_mtia = is_nested = is_quantized = False
    is_sparse_csr = is_vulkan = is_xla = is_xpu = False
    layout: Layout = strided
    _wrapper: Any = None  # what levels (forward-mode AD, vmap) know of this; see `tape.levels`

    def __new__(cls, *args: Any, **named: Any) -> Tensor:
        """PyTorch's first constructor: ``Tensor(2, 3)`` is memory, ``Tensor([2, 3])`` numbers."""
        return cls._construct(cls, args, named)

    def __init_subclass__(cls, asked: bool = True, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "__torch_dispatch__" in cls.__dict__:
            warnings.warn(
                f"{cls.__name__}.__torch_dispatch__ is not called: lucid_gpu has no ops below "
                "autograd; __torch_function__ is asked",
                stacklevel=2,
            )
        if asked:
            overrides.subclass(cls)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """What a subclass answers that overrides nothing: the op, with results of the subclass.

        NotImplemented for operands of classes that this one does not descend from.
        """
        if not all(issubclass(cls, kind) for kind in types) or overrides.is_pytorchs(func):
            return NotImplemented
        result = overrides.disabled(func, types, args, kwargs)
        return result if cls is Tensor or func in _UNWRAPPED else _converted(result, cls)

    @staticmethod
    def _make_subclass(cls: type[T], data: Tensor, require_grad: bool = False) -> T:
        """A leaf of a subclass on a tensor's memory."""
        leaf = as_kind(cls, data.detach())
        leaf.requires_grad_(require_grad)
        return leaf

    def as_subclass(self, cls: type[T]) -> T:
        """A view of a subclass, through which gradients go.

        TypeError for a class that is no subclass of Tensor.
        """
        if not (isinstance(cls, type) and issubclass(cls, Tensor)):
            raise TypeError(
                "Creating a Tensor subclass from a class that does not inherit from Tensor is not "
                f"possible. Make sure your class inherits from Tensor; got {cls!r}"
            )
        # without attributes of a subclass
        view: Any = overrides.without_handlers(self._alias)
        view.__class__ = cls
        return view

    if not TYPE_CHECKING:
        __dict__ = overrides.user_dict

    __array_priority__ = 1000  # CuPy heeds it only where there is no __array_ufunc__

    if TYPE_CHECKING:  # what `_attach_operators` and the modules of `lucid_gpu.ops` attach

        def __copy__(self) -> Tensor: ...
        def __deepcopy__(self, memo: dict[int, Any]) -> Tensor: ...
        def __reduce_ex__(self, protocol: Any) -> Any: ...
        def __dlpack__(self, **options: Any) -> Any: ...
        def __repr__(self) -> str: ...
        def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any: ...
        def __cupy_override_elementwise_kernel__(self, kernel: Any, *a: Any, **k: Any) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
        def __getattr__(self, name: str) -> Any: ...
        def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...
        def __imatmul__(self, other: Tensor) -> Tensor: ...  # type: ignore[misc]
        def __ilshift__(self, other: Any) -> Tensor: ...
        def __irshift__(self, other: Any) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __neg__(self) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
        def amax(self, dim: Any = (), keepdim: bool = False) -> Tensor: ...
        def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor: ...
        def all(self, dim: Any = None, keepdim: bool = False) -> Tensor: ...
        def reshape(self, *shape: Any) -> Tensor: ...
        def transpose(self, dim0: int, dim1: int) -> Tensor: ...
        def squeeze(self, dim: Any = None) -> Tensor: ...
        def unsqueeze(self, dim: int) -> Tensor: ...
        def clamp(self, min: Any = None, max: Any = None) -> Tensor: ...
        def where(self, condition: Tensor, other: Any) -> Tensor: ...
        def to(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def fill_(self, value: Any) -> Tensor: ...
        def copy_(self, source: Any, non_blocking: bool = False) -> Tensor: ...
        def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle: ...
        def register_post_accumulate_grad_hook(
            self, hook: Callable[[Tensor], None]
        ) -> RemovableHandle: ...
        def retain_grad(self) -> None: ...
        def numel(self) -> int: ...
        def tolist(self) -> Any: ...

        _matmul_of_arrays: Callable[..., Tensor]  # `numpy.ufuncs`
        _array_ufunc: Callable[..., Any]  # `numpy.ufuncs`
        _apply_by_op: Callable[..., Tensor | None]  # `ops.per_op_graph`
        _copied_with_memory: Callable[..., Tensor]  # `ops.storages`
        _construct: Callable[..., Tensor]  # `ops.tensor_types`
        _of: Callable[..., Tensor]  # `_tensor`
        T: Tensor
        mT: Tensor
        is_cuda: bool
        retains_grad: bool
        __abs__ = __invert__ = __neg__
        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __add__

        def __reversed__(self) -> Tensor: ...

        __matmul__ = __rmatmul__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __add__
        __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__
        __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __add__
        __div__ = __rdiv__ = __idiv__ = __add__
        __ipow__ = __iand__ = __ior__ = __ixor__ = __add__
        neg = abs = exp = log = log1p = expm1 = sqrt = rsqrt = square = reciprocal = __neg__
        sin = cos = tan = tanh = sigmoid = relu = erf = floor = ceil = round = sign = __neg__
        isnan = isinf = isfinite = logical_not = contiguous = clone = cpu = zero_ = __neg__
        mul = pow = maximum = minimum = logical_and = logical_or = matmul = mm = bmm = __add__
        any = mean = all
        amin = amax
        argmin = argmax
        view = permute = expand = repeat = flip = reshape
        dim = numel
    # --- the value ---------------------------------------------------------------------------

    @property
    def array(self) -> Any:
        """The realized buffer, a NumPy or CuPy array; it must not be written to."""
        expr = self._expr
        if not expr.program.is_load:
            self._realize()
            expr = self._expr
        if watched.by is not None:
            watched.by.read(expr.leaves[0], self)
        return expr.leaves[0].array

    def _cell(self) -> Cell:
        expr = self._expr
        if not expr.program.is_load:
            self._realize()
            expr = self._expr
        if watched.by is not None:
            watched.by.read(expr.leaves[0], self)
        return expr.leaves[0]

    def _on(self, expr: Expr) -> Tensor:
        """A tensor with a value that is kept as this one's: a sparse tensor gives a sparse one."""
        return _tensor(expr)

    def _load(self) -> Expr:
        """The realized value as an expression."""
        self._cell()
        return self._expr

    def _realize(self) -> None:
        """Compute a pending value, and the gradients that were made together with it."""
        if core is not None and core.store(self):
            return
        expr = self._expr
        if expr.program.is_load:
            return
        if watched.by is not None and watched.by.settle(self):
            return
        if state.written:
            store_written(self)
        elif self._siblings is not None or _streams is not None:
            _compute([self])
        else:
            readers = set_aside((expr,)) if waiting else ()
            if readers and core is not None and core.store(self):
                stored = self._expr
            else:
                (array,) = realize((expr,))
                if core is not None and not readers and core.settled(self, expr, array):
                    return
                scheduler.mark_computed(expr)
                stored = self._settle(expr, array)
            if readers:
                reread(readers, [(expr, stored)])

    def _settle(self, expr: Expr, array: Any) -> Expr:
        """Take a computed array as the value, unless the tensor was changed meanwhile."""
        program, storage = expr.program, self._storage
        order = order_of(expr) if program.laid else None
        free: bool | tuple[int, ...] = True
        in_order = array.flags.c_contiguous
        if order is not None:
            free = False if array.transpose(order).flags.c_contiguous else order
        away = free and not (in_order and order is None)
        if away and storage is not None and storage.others(self):
            # what is shared lies as PyTorch's does
            array = row_major(array) if order is None else laid_in(array, order)
            in_order, free = array.flags.c_contiguous, False
        needs = program.needs_grad
        if not needs:
            cell = Cell(array)
        elif program.is_boundary:
            cell = Cell(array, expr.leaves[-1].node, expr.leaves[-1].output)
        else:
            node = region.region_node(expr)
            cell = Cell(array, node)
            node.keep_output(expr, cell)
        variable = expr.variable
        if variable is None:  # as `mark_of` does
            variable, expr.version = Variable(), 0
            variable.values = [weakref.ref(expr)]
            expr.variable = variable
        cell.variable, cell.version = variable, expr.version
        plain = program.stored
        if plain is None:
            plain = program.stored = _load_of(program)
        if not in_order or (free and order is not None):  # `fusion.memory_order`
            plain = _load_of(program, not in_order, free)
        stored = Expr(plain, (cell,), None, expr.shape)
        if self._expr is expr:
            give(self, stored)
        if storage is not None:
            storage.add_cell(cell)
            for other in storage.others(self) if len(storage.tensors) > 1 else ():
                if not other._expr.program.is_load:  # of `detach`: it gets the same array
                    other._settle(other._expr, array)
        return stored

    # --- marks -------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The extents of the dimensions, a `Size`."""
        return _size(Size, self._expr.shape)

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return self._expr.program.dtype

    @property
    def device(self) -> device:
        """Where the elements are, or will be computed."""
        return self._expr.program.device

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self._expr.shape)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted; may be set on leaves."""
        return self._expr.program.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if type(value) is not bool:
            raise RuntimeError("requires_grad must be a bool")
        self._mark(value, "only Tensors of floating point and complex dtype")

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Mark a leaf, of any shape, as wanting a gradient, or not.

        Raises
        ------
        RuntimeError
            For types that have no gradients, for unmarking a tensor that is not a leaf, and inside
            of a function that is being transformed.
        """
        require_kind(Tensor.requires_grad_, "requires_grad", bool, requires_grad)
        if state.transforms and requires_grad:
            raise RuntimeError(MARKED_INSIDE)
        return self._mark(requires_grad, "only Tensors of floating point dtype")

    def _mark(
        self,
        requires_grad: bool = True,
        which: str = "Only Tensors of floating point and complex dtype",
    ) -> Tensor:
        if requires_grad and self.is_inference() and not is_inference_mode_enabled():
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                "allowed. Make a clone to get a normal tensor: x.clone().requires_grad_()."
            )
        if requires_grad == self.requires_grad:
            if requires_grad and self._follows() and self._expr.leaves[-1].leads:
                leaf = self._leaf()
                leaf._hooks = self._expr.leaves[-1].node._hooks
                self._attach(leaf)
            return self
        if not requires_grad:
            if self._follows():
                return self
            if not self.is_leaf:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use "
                    "a computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach()."
                )
            return _set_aside(self)
        if self.dtype.category < 2:
            raise RuntimeError(f"{which} can require gradients, got {self.dtype}")
        if scheduler.leaf_first(self._expr):
            self._realize()
        _replace_saved(self)
        self._attach(self._leaf())
        if self._storage is not None and self._base is None:
            for view in self._views():
                if not view.requires_grad and view.dtype.category >= 2:
                    follow_base(view)
                    if view._memory().version > view._since:
                        view._renew_view()
        return self

    def _leaf(self) -> AccumulateGrad:
        """The end of the graph where this leaf is marked, the earlier one if there was one."""
        node: AccumulateGrad | None = fields(self).pop("_leaf_node", None)
        if node is None:
            node = AccumulateGrad()
            node.refer_to(self)
        node.aside = None
        node.order = dense_order(self._expr)
        node.grad = fields(self).pop("_kept_grad", None)
        return node

    def _follows(self) -> bool:
        """Whether this requires grad only because its base does."""
        if self._base is None or not self.requires_grad:
            return False
        cell = self._expr.leaves[-1]
        if not cell.leads:
            return self._creation is not None
        return cell.node is not None and cell.node.aside == FOLLOWS

    def _views(self) -> list[Tensor]:
        """The living views of which this is the base."""
        storage = self._storage
        return [] if storage is None else [t for t in storage.others(self) if t._base is self]

    def _attach(self, node: Node, output: int = 0) -> None:
        """Send the gradient of this value to ``node``."""
        expr, storage = self._expr, self._storage
        program = expr.program
        holder: Any = expr.leaves[0] if program.is_load else expr
        variable: Any = holder.variable
        kept = variable is not None and type(variable._storage) is not Follows
        if not program.is_load:
            value = building.boundary(expr, node, output)
            give(self, value)
            if kept:
                value.variable, value.version = variable, expr.version
            elif storage is not None:
                counted(value, storage)
            return
        cell = holder.twin(node, output)
        if kept:
            cell.variable, cell.version = variable, holder.version
        d, axes, strided = program.dtype, program.axes, bool(program.strided)
        needs = load_program(d, axes, strided, True, program.device, program.marks, program.free)
        give(self, Expr(needs, (cell,), None, expr.shape))
        if storage is not None:
            storage.add_cell(cell)
            counted(self._expr, storage)

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made it: gradients end here."""
        if not self._expr.program.needs_grad:
            return True
        return type(self._edge()[0]) is AccumulateGrad

    def _edge(self) -> tuple[Any, int]:
        """The node and output this value's gradient goes to."""
        edge = region.edge_of(self._expr)
        return edge[0]._edges[0] if type(edge[0]) is Refitted else edge

    @property
    def grad_fn(self) -> Node | None:
        """The node that made it, None for a leaf."""
        node, output = self._edge()
        if node is None or type(node) is AccumulateGrad:
            return None
        node.shown_of(output, self)
        return cast("Node", node)

    @property
    def _grad_fn(self) -> Node | None:
        return self.grad_fn

    @_grad_fn.deleter
    def _grad_fn(self) -> None:
        raise RuntimeError("Deleting grad_fn of a tensor is not allowed. Call detach() instead!")

    @property
    def output_nr(self) -> int:
        """Which output of its node it is."""
        return self._edge()[1]

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward passes added up, of this tensor's shape; None before."""
        expr = self._expr
        program = expr.program
        if (program.is_load or program.is_boundary) and not program.marks & WRAPPED:
            leaf = expr.leaves[-1] if program.needs_grad else None  # as `_edge` says
            node = leaf.node if leaf is not None and leaf.leads else None
        else:
            node = self._edge()[0]
        if type(node) is AccumulateGrad:
            if nodes._before_gradient is not None:
                new_grad(node)
            gradient: Tensor | None = node.grad
            return gradient
        kept: Tensor | None = fields(self).get("_kept_grad")
        if kept is None and program.needs_grad and "_retains_grad" not in fields(self):
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor.",
                stacklevel=2,
            )
        return kept

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            _check_grad(self, value)
        expr = self._expr
        program = expr.program
        if (program.is_load or program.is_boundary) and not program.marks & WRAPPED:
            leaf = expr.leaves[-1] if program.needs_grad else None
            node = leaf.node if leaf is not None and leaf.leads else None
        else:
            node = self._edge()[0]
        if type(node) is AccumulateGrad:
            node.replace_gradient(value)
        else:
            new_grad(self)
            self._kept_grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def _grad(self) -> Tensor | None:
        """`grad` without its warning, under PyTorch's private name."""
        node = self._edge()[0]
        if type(node) is AccumulateGrad:
            return node.grad
        return fields(self).get("_kept_grad")

    @_grad.setter
    def _grad(self, value: Tensor | None) -> None:
        self.grad = value

    @property
    def _version(self) -> int:
        if self._expr.program.marks & INFERENCE:
            raise RuntimeError("Inference tensors do not track version counter.")
        storage = self._storage
        return 0 if storage is None else storage.version

    def is_inference(self) -> bool:
        """Whether this was made in inference mode, or views what was."""
        return bool(self._expr.program.marks & INFERENCE)

    def _memory(self) -> Storage:
        """The storage record, made now if there was none."""
        storage = self._storage
        if storage is None:
            expr = self._expr
            leaves = expr.leaves if expr.program.is_load else ()
            storage = self._storage = Storage(self, leaves)
            variable = leaves[0].variable if leaves else None
            if variable is not None and variable._storage is None:
                variable._storage = storage
            else:
                counted(expr, storage)
        return storage

    # --- autograd ----------------------------------------------------------------------------

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Compute the gradients of the leaves this tensor depends on; see `autograd.backward`."""
        self._go_backward(gradient, retain_graph, create_graph, None, inputs)

    def detach(self) -> Tensor:
        """The same elements and memory, apart from the graph."""
        if self._wrapper is not None:
            apart: Tensor = self._wrapper.level.detach(self)
            return apart
        other = _detached(self)
        if self._siblings is not None:
            other._siblings = self._siblings  # reading it computes what reading this would
        value = other._expr
        if not value.program.is_load:  # who writes either writes both
            variable = cast("Variable", value.variable)
            variable.values = values = counted(self._expr, self._memory()).values or []
            values.append(weakref.ref(value))
        return other

    def detach_(self) -> Tensor:
        """Cut this tensor from its graph, in place.

        Raises
        ------
        RuntimeError
            For views.
        """
        if self._base is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead, on a view of shape "
                f"{list(self.shape)}."
            )
        wrapper = self._wrapper
        if wrapper is not None and not wrapper.level.batches:
            wrapper.level.release(self)
        return _set_aside(self)

    def _is_view(self) -> bool:
        """Whether this shares the memory, and with it the history, of another tensor."""
        return self._base is not None

    def _cut(self) -> Tensor:
        """Forget where the value came from."""
        before, storage = self._expr, self._storage
        give(self, building.without_grad(before))
        saved.carry(before, self._expr)
        if storage is not None:
            if self._expr.program.is_load:
                storage.add_cell(self._expr.leaves[0])
            counted(self._expr, storage)
        return self

    def alias(self) -> Tensor:
        """A new tensor object with the same elements and history, not sharing later writes."""
        if self._wrapper is not None:
            wrapped: Tensor = self._wrapper.level.alias(self)
            return wrapped
        if watched.by is not None:
            watched.by.settle(self)
        expr = self._expr
        if expr.program.is_load:
            return _tensor(_borrowed(self, expr))
        other = _tensor(expr)
        if _streams is not None:
            other._stream = self._stream
        siblings = self._siblings
        if siblings is not None:
            siblings.append(weakref.ref(other))
            other._siblings = siblings
        return other

    def as_gradient(
        self, order: tuple[int, ...] | None, shape: tuple[int, ...] | None, new: bool = False
    ) -> Tensor:
        """An alias, of the leaf's shape, to be its first gradient, laid out as the leaf is.

        Parameters
        ----------
        order : tuple of int or None
            The leaf's `dense_order`.
        shape : tuple of int or None
            The leaf's, where it has taken another: gradients of before are expanded, as in PyTorch.
        new : bool
            Whether nobody else holds this tensor nor, unless it is borrowed, its memory: it may be
            the gradient itself.
        """
        expr = self._expr
        program = expr.program
        if shape is not None and expr.shape != shape:
            return self.expand(shape).clone().as_gradient(order, None)
        if program.marks & (SPARSE | WRAPPED):
            return self.unrecorded()
        if not program.is_load:
            if program.marks & SHARED:
                self._realize()  # before others write what it reads
            if (order_of(expr) if program.laid else None) == order:
                if not new or state.grad:
                    return self.unrecorded()
                set_apart(self)
                return self
        elif order is None and not program.strided and not program.free:
            leaf = expr.leaves[0]
            if program.marks or program.needs_grad or state.grad or leaf.node is not None:
                return self.unrecorded()
            if new and not leaf.borrowed:
                return self
            leaf = leaf.twin()  # what `unrecorded` comes to
            leaf.borrowed = True
            return _stored(program, leaf, expr.shape)
        elif dense_order(expr) == order is not None:
            other = self.unrecorded()
            return other if type(program.free) is tuple else other._keep_order()
        return _laid_out(self, order or tuple(range(len(expr.shape))))

    def plus(self, other: Tensor) -> Tensor:
        """The sum of a gradient and one of many others, of its shape, that come for one node."""
        if scheduler.sum_first(self._expr):
            self._realize()
        return self + other

    def unrecorded(self) -> Tensor:
        """An alias of a gradient's elements; unless the pass is recorded, without the graph."""
        other = self.alias()
        if not state.grad:
            set_apart(other)
        return other

    @property
    def data(self) -> Tensor:
        """The same elements and memory apart from the graph; writes to it are not counted here."""
        if self._wrapper is None:
            return _detached(self, SameMemory)
        other = self.detach()
        other._siblings, other._storage = None, SameMemory(self._memory())
        counted(other._expr, other._storage)
        return other

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type_name(value)}")
        if value._is_sparse:
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have "
                "incompatible tensor type: `tensor` is sparse; call .to_dense() first"
            )
        # a part of what was written has a history that it refuses to tell, and goes on so
        past: Any = self._expr.leaves[0] if self._expr.program.marks & FORBIDDEN else None
        kept, output = region.edge_of(self._expr) if past is None else (past, 0)
        node, like = kept, (self._expr.shape, self._expr.program.dtype)
        if type(kept) is Refitted:
            (node, output), like = kept._edges[0], (kept.shape, kept.dtype)
        if node is not None and value.dtype.category < 2:
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, got {value.dtype.name}; call requires_grad_(False) first."
            )
        if watched.by is not None:
            watched.by.moving(self, _OF_MEMORY)
        version = 0 if self._storage is None else self._storage.version
        other = value.detach()
        _replace_saved(self)
        if self._storage is not None:
            self._storage.forget(self)
        self._siblings = other._siblings
        give(self, other._expr)
        self._storage = SameMemory(other._memory(), version)
        if self._expr.program.is_load:
            _take_uncounted_leaf(self)
        counted(self._expr, self._storage)
        self._base, self._steps, self._creation = None, (), None
        if _streams is not None:
            _streams.add(self)
            self._stream = other._stream
        self._storage.add(self)
        if type(node) is AccumulateGrad:
            node.order = dense_order(self._expr)
            node.shape = self._expr.shape
        if past is not None:
            self._forbid(past)
        elif node is not None:
            fits = like == (self._expr.shape, self._expr.program.dtype)
            if not fits and type(node) is not AccumulateGrad:
                node, output = Refitted((node, output), *like), 0
            self._attach(node, output)

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    # --- Python's own protocols ---------------------------------------------------------------

    def __len__(self) -> int:
        shape = self._expr.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        shape = self._expr.shape
        if not shape:
            raise TypeError("iteration over a 0-d tensor")
        count = shape[0]
        if count <= _ROWS or self._expr.program.needs_grad or self._wrapper is not None:
            return iter(self.unbind(0))
        # a few rows at a time: a million that live at once take four times as long
        starts = range(0, count, _ROWS)
        whole = self.narrow(0, 0, count)  # it may get other memory, or another shape, meanwhile
        parts = (whole.narrow(0, start, min(_ROWS, count - start)).unbind(0) for start in starts)
        return itertools.chain.from_iterable(parts)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            if self.numel() == 0:
                raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
            raise RuntimeError(
                "Boolean value of Tensor with more than one value is ambiguous; got shape "
                f"{list(self.shape)}; use .any() or .all()"
            )
        return bool(self.item())

    def __pos__(self) -> Tensor:
        if self._expr.program.dtype.category == 0:
            raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
        return self

    def __float__(self) -> float:
        return float(_real_of(_kept_number(self), "double"))

    def __int__(self) -> int:
        return int(_real_of(self._number(), "int64_t"))

    def __complex__(self) -> complex:
        return complex(_kept_number(self))

    def _number(self) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __index__(self) -> int:
        if self.dtype.category > 1 or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    __hash__ = object.__hash__  # by identity, which needs no call of Python

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, bool, int, float, complex, np.generic)):
            raise RuntimeError(
                "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}."
            )
        return bool((self == element).any())

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and (spec or type(self) is Tensor) and self.device.type != "meta":
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The elements as a NumPy array, which shares memory where it can, as `numpy` does.

        Tensors on a GPU are copied.

        Raises
        ------
        RuntimeError
            For tensors that require grad, as `numpy`.
        ValueError
            If ``copy`` is False and a copy is needed.
        """
        if state.of_arrays and self.requires_grad and state.grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad in a function that is being "
                "differentiated: an array is wanted here, and would have no gradient. Use "
                "tensor.detach() if that is meant; lucid_gpu.numpy.array of a list, numpy.stack, "
                "or a write into a tensor (numpy.zeros_like(x) of a tensor is one) keep it"
            )
        there = self.device.type != "cpu"
        if copy is False and (there or not (dtype is None or dtype == self.dtype.numpy)):
            raise ValueError(
                f"Unable to avoid copy: a tensor of {self.dtype} on {self.device} can't share its "
                f"memory with an array of {self.dtype.numpy if dtype is None else dtype}"
            )
        away = there and not self.requires_grad and self.device.type != "meta"
        array = (self.detach().cpu() if away else self).numpy()
        if dtype is not None:
            array = array.astype(dtype, copy=False)
        return array.copy() if copy else array

    __array_ufunc__ = _UfuncAnswer()

    def __rdivmod__(self, other: Any) -> Any:
        """For an array on the left; PyTorch's tensors have no divmod."""
        return (
            (other // self, other % self) if hasattr(other, "__array_ufunc__") else NotImplemented
        )

    def item(self) -> Any:
        """The only element as a Python number.

        Raises
        ------
        RuntimeError
            For tensors of another number of elements.
        """
        scheduler.begin_step()
        if state.written:
            store_written()
        array = self.array
        if array.size != 1:
            raise RuntimeError(f"a Tensor with {array.size} elements cannot be converted to Scalar")
        program = self._expr.program
        value = backend(program.device).item(array)
        return float(value) if program.dtype.category == 2 else value

    def numpy(self, *, force: bool = False) -> Any:
        """The buffer as a NumPy array that shares memory with this (CPU) tensor.

        Raises
        ------
        RuntimeError
            For tensors that require grad, while ops are recorded (inside a `Function` they are
            not); TypeError for those on a GPU. ``force=True`` detaches and copies from there.
        """
        backend(CPU).once("numpy()", READ_ONCE)
        scheduler.begin_step()
        if state.written:
            store_written()
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        program = self._expr.program
        if program.needs_grad and state.grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        if program.device.type != "cpu":
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        return self._hand_out()

    def _hand_out(self, forever: bool = False) -> Any:
        """Lend the buffer: from now on, others may write it."""
        mirror = None if self._storage is None else self._storage.mirror
        if mirror is not None:
            bit, name = ("conjugate", "conj") if mirror.bits & CONJUGATED else ("negative", "neg")
            raise RuntimeError(
                f"Can't call numpy() on Tensor that has {bit} bit set. Use "
                f"tensor.resolve_{name}().numpy() instead."
            )
        if self._cell().borrowed or self._expr.program.free:
            _give_up_order(self)
        storage = self._storage or self._memory()
        if storage.owner is None or not storage.is_lent():
            self._protect_readers(storage, written=False)
            storage.lend(self._expr.leaves[0])
        if forever:
            storage.lend(self._expr.leaves[0], forever)
        for reference in storage.tensors:
            tensor = reference()
            if tensor is not None:
                _mark_shared(tensor)
        return self._expr.leaves[0].array.view()

    def _keep_order(self) -> Tensor:
        """Take the order in which the elements lie as chosen: results follow it."""
        expr = self._load()
        if type(expr.program.free) is tuple:
            self.stride()
            expr = self._expr
        if expr.program.free:
            load_as(self, changed_load(expr.program, free=False))
        return self

    def _own_memory(self) -> None:
        """Copy a borrowed buffer that others still read, before a view of it is given away."""
        cell = self._cell()
        if cell.borrowed:
            # the owner is held by others' views, too, where the array is a view itself
            if sys.getrefcount(cell.array) > 2 or sys.getrefcount(owner_of(cell.array)) > 2:
                cell.array = duplicate(cell.array)
            cell.borrowed, cell.home = False, None
            if self._storage is not None:
                self._storage.add_cell(cell)

    def __dir__(self) -> list[str]:
        names = {*super().__dir__()}
        if self.device.type == "cpu":  # as in PyTorch: asked for, it raises
            names.discard("__cuda_array_interface__")
        return sorted(names)


def _apart(tensor: Tensor, record: type[SameMemory] | None = None) -> Tensor:
    """The same elements and memory, of which a ``record`` of its own counts the writes."""
    if watched.by is not None:
        watched.by.settle(tensor)
    expr = tensor._expr
    realized = expr.program.is_load
    if realized and (expr.program.free or expr.leaves[0].borrowed or watched.by is not None):
        _give_up_order(tensor)
        expr = tensor._expr
    if expr.program.independent:  # leaves of its own: see `ops.in_place`
        leaves = (expr.leaves[0].twin(),) if realized else (*expr.leaves,)
        other = _tensor(Expr(expr.program, leaves, expr.made_by, expr.shape))
    else:
        other = _tensor(building.without_grad(expr))
    if _streams is not None:
        other._stream = tensor._stream
    storage = tensor._storage or tensor._memory()
    other._storage = storage = storage if record is None else record(storage)
    storage.add(other)
    leaf = other._expr.leaves[0] if realized else None
    if leaf is not None and leaf is not expr.leaves[0] and leaf.home is None:
        storage.add_cell(leaf)
    counted(other._expr, storage)
    return other


_detached: Callable[..., Tensor] = _apart if core is None else core.detached


def _replace_saved(tensor: Tensor) -> None:
    """Ops that saved this tensor read, going backward, what it has then."""
    value, storage = tensor._expr, tensor._storage
    others = [] if storage is None else storage.others(tensor)
    if value.program.is_load:
        (cell,) = value.leaves
        if any(cell in other._expr.leaves for other in others):
            return
    elif any(other._expr is value for other in others):
        return
    variable, _ = mark_of(value)
    variable._storage = Follows(lambda: tensor._storage, tensor)
    saved.note_written(variable)


def follow_base(view: Tensor) -> None:
    """A view that is a leaf requires grad because its base does; it gets none of its own."""
    node = AccumulateGrad()
    node.refer_to(view)
    node.aside = FOLLOWS
    view._attach(node)


def _set_aside(tensor: Tensor) -> Tensor:
    """Cut the tensor off; a leaf keeps its gradient and hooks for when it is marked again."""
    node, output = tensor._edge()
    if type(node) is AccumulateGrad and node.aside is None:
        node.aside = UNMARKED
        fields(tensor).update(_leaf_node=node, _kept_grad=node.grad)
    elif node is not None:
        tensor._left = weakref.ref(node), output
    tensor._cut()
    if tensor._base is not None:
        if tensor._base.requires_grad:
            follow_base(tensor)
        return tensor
    for view in tensor._views():
        if view._follows():
            view._cut()
    return tensor


def _take_uncounted_leaf(tensor: Tensor) -> None:
    """Read the memory through a leaf of its own, which writes of other tensors leave good."""
    cell = tensor._expr.leaves[0].twin()
    load_as(tensor, tensor._expr.program, cell)
    tensor._memory().add_cell(cell)


def _kept_number(tensor: Tensor) -> Any:
    """One number, where no gradient is lost by it: ``a[i] = x`` asks for one of NumPy's."""
    if state.of_arrays and tensor.requires_grad and state.grad:
        raise RuntimeError(
            "Can't call float() on a Tensor that requires grad in a function that is being "
            "differentiated: the number would have no gradient. Use tensor.detach() if that is "
            "meant; NumPy's functions instead of math's; numpy.stack, numpy.where or a tensor "
            "(numpy.zeros_like(x)) instead of an array that is written into"
        )
    if tensor._expr.program.needs_grad:
        warnings.warn(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first, or tensor.item().",
            stacklevel=3,
        )
    return tensor._number()


def _give_up_order(tensor: Tensor) -> None:
    """Before others get the buffer: own it, and lay it in PyTorch's order (`Program.free`)."""
    if tensor._cell().borrowed:
        tensor._own_memory()
    if tensor._expr.program.free:
        tensor.stride()


def _check_grad(tensor: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type_name(value)}"
        )
    if value is tensor:
        raise RuntimeError("can't assign Variable as its own grad")
    if tensor.shape != value.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
            f"'{list(tensor.shape)}'. Please ensure that the gradient and the tensor are the same "
            "size"
        )
    for what, mine, other in (
        ("dtype", tensor.dtype, value.dtype),
        ("device", tensor.device, value.device),
    ):
        if mine != other:
            raise RuntimeError(
                f"attempting to assign a gradient with {what} '{other}' to a tensor with {what} "
                f"'{mine}'. Please ensure that the gradient and the tensor are of the same {what}"
            )


def dense_order(value: Expr) -> tuple[int, ...] | None:
    """How the dimensions of a dense array lie in memory; None for row-major, and with gaps."""
    program = value.program
    if type(program.free) is tuple:
        return program.free
    strides = strides_of(value) if program.is_load else None
    if strides is None:
        return None
    return memory_layout.dense_order(value.shape, strides, program.dtype.itemsize)


def _borrowed(tensor: Tensor, expr: Expr) -> Expr:
    """The value through a leaf of its own, which yields to the owner of the memory."""
    program, cell = expr.program, expr.leaves[0]
    if not program.marks & SHARED:
        fresh = cell.twin(cell.node, cell.output)
    else:
        program, storage = changed_load(program, marks=0), tensor._storage
        if storage is None or storage.is_lent():  # others write it without telling us
            if watched.by is not None:
                watched.by.read(cell, tensor)
            fresh = Cell(duplicate(cell.array), cell.node, cell.output)
            return Expr(program, (fresh,), None, expr.shape)
        fresh = cell.twin(cell.node, cell.output)
    fresh.borrowed = True
    return Expr(program, (fresh,), None, expr.shape)


def in_free_order(tensor: Tensor) -> Tensor:
    """The same value, of which results do not take the order in memory."""
    expr = tensor._load()
    return _tensor(Expr(changed_load(expr.program, free=True), expr.leaves, None, expr.shape))


def _laid_out(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """A copy whose dimensions lie in memory in this order."""
    program = tensor._expr.program
    d, where = program.dtype, program.device
    memory = backend(where).empty([tensor._expr.shape[i] for i in order], d, where)
    with on_gpu_of(where):  # a leaf's gradient is no op's
        write(memory, tensor.array.transpose(order))
    copy = from_array(memory.transpose(inverse(order)), d, where)._keep_order()
    if tensor._expr.program.needs_grad:
        copy._attach(*tensor._edge())
    elif not tensor._expr.program.independent:
        building.mark_dependent(copy)
    return copy


def _load_of(
    program: Program, strided: bool = False, free: bool | tuple[int, ...] = False
) -> Program:
    """The program of a value once it is an array; ``free`` as `Program.free`."""
    return load_program(
        program.dtype,
        program.axes,
        strided,
        program.root.needs_grad,
        program.device,
        program.marks & (WRAPPED | INFERENCE),
        free,
    )


def _mark_shared(tensor: Tensor) -> None:
    """Ops on memory others can write are realized at once."""
    expr = tensor._expr
    program = expr.program
    if program.is_load and not program.marks & SHARED:
        shared = marked(program, program.marks | SHARED)
        give(tensor, Expr(shared, expr.leaves, None, expr.shape))


def _unmark_shared(tensor: Tensor) -> bool:
    """Let ops on a value wait again once nobody outside holds its memory; whether they may."""
    program = tensor._expr.program
    if not program.marks & SHARED or not program.is_load:
        return False
    storage = tensor._storage
    if storage is not None and storage.is_lent():
        return False
    load_as(tensor, marked(program, program.marks & ~SHARED))
    return True


_OF_MEMORY = ("_expr", "_storage", "_siblings", "_base", "_steps", "_creation")


def move_back(tensor: Tensor, attributes: dict[str, Any]) -> None:
    """Give a tensor the memory back that it had before it was given other (`x.data = y`)."""
    storage = attributes["_storage"]
    if tensor._storage is not None:
        tensor._storage.forget(tensor)
    for name, value in attributes.items():
        setattr(tensor, name, value)
    program, leaves = tensor._expr.program, tensor._expr.leaves
    if storage is not None:
        storage.add(tensor, leaves[0] if program.is_load else None)
    node, _ = tensor._edge()
    if type(node) is AccumulateGrad:
        node.order, node.shape = dense_order(tensor._expr), tensor._expr.shape


# --- computing pending values ----------------------------------------------------------------


def _compute(tensors: Sequence[Tensor]) -> None:
    """Store pending values of one shape, and what was made together with them, by one kernel."""
    if core is not None and len(tensors) == 1 and core.store(tensors[0]):
        return
    members: Sequence[Tensor] = tensors
    for tensor in tensors:
        if tensor._siblings is not None:
            members = _with_siblings(tensors)
            break
    if not members:  # another thread has stored them meanwhile
        return
    values = [member._expr for member in members]
    readers = set_aside(values) if waiting else ()
    arrays = realize(values) if _streams is None else _streams.compute(members, values)
    stored = []
    for member, value, array in zip(members, values, arrays, strict=True):
        if core is not None and not readers and core.settled(member, value, array):
            continue
        scheduler.mark_computed(value)
        stored.append((value, member._settle(value, array)))
    if readers:
        reread(readers, stored)
    if len(members) > 1 and state.grad:
        region.note_family(values)


def _with_siblings(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of one shape, and those that wait to be computed with one of them."""
    members: dict[int, Tensor] = {}  # one for each memory: `_settle` takes aliases along
    shape = tensors[0]._expr.shape
    for tensor in tensors:
        siblings = tensor._siblings or []
        for other in (tensor, *[r() for r in siblings]):
            if other is None:
                continue
            value = other._expr
            if not value.program.is_load and value.shape == shape:
                members.setdefault(id(other._storage or other), other)
        siblings.clear()
    return list(members.values())


def store_written(*beside: Tensor) -> None:
    """Store what this thread has written in place, and other pending values in kernels with it."""
    if not state.written and len(beside) < 2:
        for tensor in beside:
            tensor._realize()
        return
    if core is not None and not beside and core.store_written():
        return
    tensors = scheduler.take_written()
    if beside:
        tensors = [*{id(tensor): tensor for tensor in (*tensors, *beside)}.values()]
    for group in scheduler.kernels_of(tensors):
        if core is not None and len(group) == 1 and core.store(group[0]):
            continue
        pending = [tensor for tensor in group if not tensor._expr.program.is_load]
        if pending:
            _compute(pending)


# --- making tensors and ops ------------------------------------------------------------------


def _of_value(value: Expr) -> Tensor:
    """Return a tensor with this value."""
    tensor = _new(Tensor)
    tensor._expr = value
    if _streams is not None:
        _streams.add(tensor)
    return tensor


def _of_array(program: Program, array: Any, node: Any, output: int, shape: Shape) -> Tensor:
    """Return a tensor that reads an array by the program of a load, an output of a node or None."""
    return _of_value(Expr(program, (Cell(array, node, output),), None, shape))


def _of_pending(pending: pending_reductions.Pending, node: Any, output: int) -> Tensor:
    """Return a tensor of the first result of a reduction, an output of a node or None."""
    return _of_value(pending.result(node, output))


_tensor: Callable[[Expr], Tensor] = _of_value if core is None else core.of_value
_wrapped: Callable[..., Tensor] = _of_array if core is None else core.of_array
of_pending: Callable[..., Tensor] = _of_pending if core is None else core.of_pending


def _stored(program: Program, leaf: Cell, shape: Shape) -> Tensor:
    """Return a tensor whose array a leaf has."""
    return _tensor(Expr(program, (leaf,), None, shape))


def of_kept(program: Program, array: Any) -> Tensor:
    """A tensor of a new row-major array, whose program the caller has kept from an earlier call."""
    if modes.watchers:
        return from_array(array, program.dtype, program.device)
    return _wrapped(program, array, None, 0, array.shape)


def arrays_of(tensors: Sequence[Tensor]) -> list[Any]:
    """The arrays of tensors, most of which are realized."""
    if watched.by is not None:
        return [tensor.array for tensor in tensors]
    return [
        tensor._expr.leaves[0].array if tensor._expr.program.is_load else tensor.array
        for tensor in tensors
    ]


OF_SHOWN = 200  # bytes, about, of what is kept of a view of a gradient


def is_shown(gradient: Tensor) -> bool:
    """Whether `show` may view a gradient: a realized one that shares no memory as far as is known,
    in a pass that is not recorded.
    """
    program = gradient._expr.program
    return (
        program.is_load
        and not (program.marks or program.free or program.needs_grad)
        and is_unshared(gradient)
        and not (state.grad or modes.watchers or open_levels)
        and watched.by is None
    )


def is_unshared(tensor: Tensor) -> bool:
    """Whether no other leaf is known to read the array of a realized tensor."""
    leaf = tensor._expr.leaves[0]
    return tensor._storage is None and leaf.home is None and leaf.sharers is None


def show(gradient: Tensor, array: Any) -> Tensor:
    """A view of a gradient for the node that it goes to: nobody has to know what it is a view of.

    Either copies before it is written.

    Parameters
    ----------
    gradient : Tensor
        One for which `is_shown` holds.
    array : array
        The view of its array.
    """
    gradient._expr.leaves[0].borrowed = True
    return on_borrowed(gradient._expr.program, array)


def on_borrowed(like: Program, array: Any) -> Tensor:
    """A tensor on an array, a part of memory that others have too, of another one's type and
    device.
    """
    key = (like, array.shape, array.strides)
    kept = _parts.get(key)
    if kept is None:
        strided = not array.flags.c_contiguous
        kept = _parts[key] = load_program(like.dtype, array.shape, strided, False, like.device)
        spend(OF_SHOWN)
    tensor = _wrapped(kept, array, None, 0, array.shape)
    tensor._expr.leaves[0].borrowed = True
    return tensor


_parts: dict[tuple[Program, Shape, Shape], Program] = derived("loads of parts of memory")


Tensor._of = staticmethod(_tensor)  # for files below this one


def follow_streams(order: Any) -> Any:
    """Have pending values noted and computed by ``order``, see `cuda.pending`; None ends that.

    Returns what did so before.
    """
    global _streams
    before, _streams = _streams, order
    if core is not None:
        core.close(order is not None)
    return before


def forget_stored() -> None:
    """Forget tensors that were noted while they were pending, and are not any more."""
    if _streams is not None:
        _streams.tensors()


def becomes_pending(tensor: Tensor) -> None:
    """Note a tensor that took a pending value, in programs with streams."""
    if _streams is not None:
        _streams.add(tensor)


def as_kind(kind: type[T], tensor: Tensor) -> T:
    """A tensor of a class on another one's value and memory."""
    other = _new(kind)
    other._expr, other._storage = tensor._expr, tensor._storage
    if other._storage is not None:
        other._storage.add(other)
    if _streams is not None:
        if not tensor._expr.program.is_load:
            _streams.add(other)
        other._stream = tensor._stream
    return other


def from_array(
    array: Any, d: dtype | None = None, where: device = CPU, node: Node | None = None
) -> Tensor:
    """Wrap an array of NumPy or CuPy that nobody else will write, output 0 of a node or None."""
    if isinstance(array, np.generic):  # what NumPy gives for 0-d results
        array = np.asarray(array)
    if d is None:
        d = dt.from_numpy_dtype(array.dtype)
    marks, strided = building.made_here() if modes.watchers else 0, not array.flags.c_contiguous
    program = load_program(d, array.shape, strided, node is not None, where, marks, True)
    return _wrapped(program, array, node, 0, array.shape)


_NUMBERS = (bool, int, float, complex)
_READY = frozenset((Tensor, *_NUMBERS))  # operands as they are


def apply(
    op: Op,
    *operands: Any,
    to: dtype | None = None,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Apply a row of the op table to tensors and numbers; the way every op can be built."""
    for o in operands:
        if type(o) not in _READY:
            operands = tuple([_operand(op, o, operands) for o in operands])
            break
    where, marks = None, 0
    for o in operands:
        if isinstance(o, Tensor):
            program = o._expr.program
            marks |= program.marks
            if where is not program.device:
                if where is not None and where != program.device:
                    operands, marks = _on_one_device(operands), -1
                    break
                where = program.device
    if watched.by is not None:
        watched.by.settle(*operands)
    shared = False
    for o in operands if marks else ():
        if isinstance(o, Tensor) and o._expr.program.marks:
            if o._expr.program.marks & INFERENCE and state.grad:
                o._refuse_inference_operands(op, operands, to, shape)
            if not o._expr.program.barred:
                continue
            if o._expr.program.marks & WRAPPED:
                wrapped: Tensor = innermost(operands).apply(op, operands, to, shape)
                return wrapped
            if o._expr.program.marks & SPARSE:
                computed: Tensor = o._elementwise(op, operands)
                return computed
            if o._expr.program.marks & FORBIDDEN and state.grad and op.differentiable:
                o._edge()  # refuses, at the user's line
            if not _unmark_shared(o):
                shared = True
    if state.mode is WATCHED:
        alone = Tensor._apply_by_op(op, operands, to, shape)
        if alone is not None:
            return alone
    while True:
        values = []
        for o in operands:
            values.append(o._expr if isinstance(o, Tensor) else o)
        try:
            result = _tensor(building.build(op, values, state.mode, to, shape))
            break
        except building.MustStore as which:
            _store(operands, which.operands)
    if (shared or _Eager.on) and scheduler.at_once(shared):
        result._realize()
    return result


def _real_of(number: Any, wanted: str) -> Any:
    """A number that is to become a real one: the real part of a complex one without another."""
    if type(number) is not complex:
        return number
    if number.imag:
        raise RuntimeError(f"value cannot be converted to type {wanted} without overflow")
    return number.real


def _operand(op: Op, value: Any, beside: tuple[Any, ...]) -> Any:
    """A tensor or a number; an array of the host comes along to the device of the tensors."""
    if isinstance(value, (Tensor, *_NUMBERS)):
        return value
    if isinstance(value, np.generic) or (op.name == "sub" and type(value) is np.ndarray):
        if op.name == "sub" and value.dtype.kind == "b" and not value.ndim:
            return int(value)  # what is refused is a bool of Python's, or a tensor
        if isinstance(value, np.generic):
            return value.item()
    theirs = backend_of_array(value)
    if theirs is not None:
        copied = theirs.xp.array(value, value.dtype.newbyteorder("="))  # of a subclass too
        tensor = from_array(copied, None, theirs.device_of(value))
        like = next((t for t in beside if isinstance(t, Tensor)), tensor)
        return tensor if theirs.type == "cuda" else tensor.to(like.device)
    raise TypeError(f"{op.name}(): argument must be Tensor or a number, not {type_name(value)}")


def _on_one_device(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """A 0-d CPU tensor may meet any device: it joins as a number."""
    devices = [o._expr.program.device for o in operands if isinstance(o, Tensor)]
    return tuple(
        [
            o.to(next(d for d in devices if d.type != "cpu"))
            if isinstance(o, Tensor) and o.ndim == 0 and o.device.type == "cpu"
            else o
            for o in operands
        ]
    )


def _converted(result: Any, kind: type[Tensor]) -> Any:
    """The tensors that an op returned, of a subclass."""
    if isinstance(result, Tensor):
        return result if isinstance(result, kind) else result.as_subclass(kind)
    if isinstance(result, (tuple, list)):
        parts = [_converted(part, kind) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _store(operands: Sequence[Any], values: Sequence[Expr]) -> None:
    """Store the operands that have these values, or what was reduced to them."""
    tensors: list[Tensor | None] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            tensors.append(operand)
            for leaf in operand._expr.leaves:
                source = None if leaf.result is None else leaf.source
                if source is not None:
                    tensors.append(source.tensor())
    stored = {id(t): t for t in tensors if t is not None and t._expr in values}
    store_written(*stored.values())


def unary(op: Op) -> Callable[[Tensor], Tensor]:
    """Return the method of a one-operand row."""

    def method(self: Tensor) -> Tensor:
        return apply(op, self)

    return _at_the_door(op, method)


def is_foreign(name: str, other: Any) -> bool:
    """Whether an operator leaves an operand, which is not a tensor, to the methods of its class.

    TypeError for PyTorch's tensors.
    """
    kind = type(other)
    if kind in (float, int, bool, complex) or backend_of_array(other) is not None:
        return False
    if kind.__module__.partition(".")[0] == "torch":
        raise TypeError(
            f"{name}: a lucid_gpu.Tensor and a {kind.__module__}.{kind.__name__} "
            "don't mix; write lucid_gpu.from_torch(x.detach()) or to_torch(t.detach())"
        )
    return True


def binary(op: Op, name: str, reflected: bool = False) -> Callable[[Tensor, Any], Any]:
    """The method of a two-operand row; ``reflected`` is for ``2 - x``.

    An operator leaves operands of other kinds to these; ``x.mul(y)`` refuses them, and so does what
    has no name, which functions call.
    """
    named = name[:1] != "_"

    def method(self: Tensor, other: Any) -> Any:
        if type(other) not in _READY and not isinstance(other, Tensor):
            if named:
                if name and not overrides.handling and overrides.overrides(other):
                    return overrides.declined(name, self, other)
            elif is_foreign(op.name, other):
                return overrides.declined(name, self, other)
        return apply(op, other, self) if reflected else apply(op, self, other)

    return _at_the_door(op, method, reflected)


def _at_the_door(op: Op, method: Any, reflected: bool = False) -> Callable[..., Any]:
    """Return a row's method with its short cut, behind the door where autocast casts for it."""
    if core is not None:
        power = op.name in ("pow", "root")
        short = core.Method(method, op, 2 if op.arity > 1 else 1, reflected, power)
        method = functools.update_wrapper(short, method)
    return door.op(method, autocast=op.autocast) if op.autocast else method


_bitwise_not = unary(TABLE["bitwise_not"])


def _invert(self: Tensor) -> Tensor:
    """``~x``: of whole numbers and truth values."""
    if self.dtype.category > 1:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors, got "
            f"{self.dtype.name}; a mask is ~(x > 0)"
        )
    inverted: Tensor = _bitwise_not(self)
    return inverted


def _attach_operators() -> None:
    for dunder, name in (
        ("add", "add"),
        ("sub", "sub"),
        ("mul", "mul"),
        ("truediv", "div"),
        ("floordiv", "floor_divide"),
        ("mod", "remainder"),
        ("pow", "pow"),
        ("and", "bitwise_and"),
        ("or", "bitwise_or"),
        ("xor", "bitwise_xor"),
        ("lshift", "bitwise_left_shift"),
        ("rshift", "bitwise_right_shift"),
    ):
        _set(f"__{dunder}__", binary(TABLE[name], f"__{dunder}__"))
        _set(f"__r{dunder}__", binary(TABLE[name], f"__r{dunder}__", reflected=True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        _set(f"__{name}__", binary(TABLE[name], f"__{name}__"))
    for dunder, name in (("neg", "neg"), ("abs", "abs")):
        _set(f"__{dunder}__", unary(TABLE[name]))
    _set("__invert__", _invert)


def _set(name: str, function: Any) -> None:
    function.__name__ = name
    function.__qualname__ = f"Tensor.{name}"
    setattr(Tensor, name, function)


if core is not None:
    core.bind(
        tensor=Tensor,
        expr=Expr,
        cell=Cell,
        variable=Variable,
        program=Program,
        steps=steps,
        state=state,
        waiting=waiting,
        observers=observers,
        watched=vars(watched),
        eager=_Eager,
        unread=Unread,
        of_value=_of_value,
        of_array=_of_array,
        met=scheduler.met,
        store_first=_store,
        always=ALWAYS,
        computed=COMPUTED,
        leaf_written=LEAF_WRITTEN,
        pending=pending_reductions.Pending,
        recipe=pending_reductions.Recipe,
        reduced=pending_reductions.ReducedCell,
        of_pending=_of_pending,
        start=pending_reductions.started,
        make_room=pending_reductions.make_room,
        nobody=pending_reductions.nobody,
        array=vars(Tensor)["array"].fget,
        grad=vars(Tensor)["grad"].fget,
    )
    for _name in ("array", "grad"):
        _read: property = vars(Tensor)[_name]
        _door = core.Door(getattr(core, _name), None, None, (), (), (), -1, frozenset(), ())
        _named = functools.update_wrapper(_door, _read.fget)  # type: ignore[arg-type]
        setattr(Tensor, _name, property(_named, _read.fset, _read.fdel))
    when_forgotten.append(core.forget)
_attach_operators()
_UNWRAPPED = frozenset(
    [vars(Tensor)[name].__get__ for name in ("grad", "_grad")]  # PyTorch's list
)
overrides.watch(Tensor)

__all__ = ["Tensor", "apply", "binary", "from_array", "unary"]
