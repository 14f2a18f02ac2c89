"""Tensors of which each rank holds some rows: `DTensor`, in its simplest form."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from lucid_gpu.distributed import groups
from lucid_gpu.distributed.collectives import (
    all_gather_into_tensor,
    all_reduce,
    broadcast,
    reduce_scatter_tensor,
    scatter,
)
from lucid_gpu.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.dtypes import dtype as DType
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.creation import empty, zeros
from lucid_gpu.ops.in_place import LEAF_IN_PLACE
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import cat
from lucid_gpu.storage import Size
from lucid_gpu.tape import overrides
from lucid_gpu.tape.modes import no_grad, set_grad_enabled, state
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import Tensor, forget_stored, from_array, store_written

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_tensor",
    "init_device_mesh",
]

__path__ = [  # `distributed.tensor.placement_types`
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "torch_names", "distributed", "tensor")
]


class Placement:
    """How a tensor lies along one dimension of a mesh of ranks."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank holds a part of this dimension, or of any."""
        return False

    def is_replicate(self) -> bool:
        """Whether all ranks hold the same."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether what the ranks hold is still to be combined, by this operation or by any."""
        return False


@dataclass(frozen=True)
class Shard(Placement):
    """Along a dimension of the mesh each rank holds a part of dimension ``dim``."""

    dim: int

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is of this dimension, or of any."""
        return dim is None or dim == self.dim

    @staticmethod
    def local_shard_size_and_offset(
        curr_local_size: int, num_chunks: int, rank: int
    ) -> tuple[int, int]:
        """How many of so many rows a rank holds, and which is its first."""
        most = -(-curr_local_size // num_chunks)
        start = min(rank * most, curr_local_size)
        return min(most, curr_local_size - start), start


@dataclass(frozen=True)
class Replicate(Placement):
    """Along a dimension of the mesh all ranks hold the same."""

    def is_replicate(self) -> bool:
        """True."""
        return True


@dataclass(frozen=True)
class Partial(Placement):
    """Along a dimension of the mesh the ranks hold terms of what ``reduce_op`` makes of them."""

    reduce_op: str = "sum"

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is of this operation, or of any."""
        return reduce_op is None or reduce_op == self.reduce_op


class Sharding(NamedTuple):
    """How rows lie on ranks: as `torch.chunk` cuts them, so that the last ranks may have fewer.

    Attributes
    ----------
    mesh : DeviceMesh
        Of one dimension, or of two: copies, and ranks that share the rows of each.
    shape : tuple of int
        Of the whole tensor.
    divisor : float, optional
        What sums of gradients are divided by; the number of ranks by default.
    """

    mesh: DeviceMesh
    shape: tuple[int, ...]
    divisor: float | None = None

    @property
    def group(self) -> Any:
        """The ranks that share the rows."""
        return self.mesh.get_group(self.mesh.ndim - 1)

    @property
    def placements(self) -> tuple[Any, ...]:
        """Under PyTorch's names."""
        return (*[Replicate()] * (self.mesh.ndim - 1), Shard(0))

    @property
    def most(self) -> int:
        """The largest number of rows of a rank."""
        return -(-self.shape[0] // self.ranks)

    @property
    def width(self) -> int:
        """How many elements a row has."""
        return math.prod(self.shape[1:])

    def rows(self, rank: int | None = None) -> tuple[int, int]:
        """The first row of a rank, by default this one, and the one after its last."""
        if rank is None:
            rank = self.mesh.get_local_rank(self.mesh.ndim - 1)
        count, start = Shard.local_shard_size_and_offset(self.shape[0], self.ranks, rank)
        return start, start + count

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Of this rank's rows."""
        return (self.count(), *self.shape[1:])

    @property
    def ranks(self) -> int:
        """How many ranks share the rows."""
        return self.mesh.size(self.mesh.ndim - 1)

    def count(self, rank: int | None = None) -> int:
        """How many rows a rank has, by default this one."""
        start, end = self.rows(rank)
        return end - start


class DTensor(Tensor, asked=False):
    """A tensor of which each rank holds some rows.

    To whoever reads it, it is the whole: ``shape`` is the whole one, and ops compute with
    `full_tensor`, for which all ranks must call them. Elementwise ops of tensors that lie alike,
    of numbers and of whole tensors are computed by rows where nothing is recorded, and give a
    DTensor; in-place ops write the rows. What hands out memory is refused. The rows are another
    tensor: there is no way by which an op comes to them unawares.

    Attributes
    ----------
    rows : Tensor
        This rank's, which has the gradient; see `to_local`.
    sharding : Sharding
    """

    rows: Tensor
    sharding: Sharding

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """The op on what the ranks hold together."""
        return _answer(func, args, kwargs or {})

    @property
    def _expr(self) -> Any:  # type: ignore[override]
        raise _refusal("this", self)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks."""
        return self.sharding.mesh

    @property
    def placements(self) -> tuple[Any, ...]:
        """How the tensor lies on the mesh, one entry for each of its dimensions."""
        return self.sharding.placements

    @property
    def shape(self) -> Size:
        """Of the whole tensor."""
        return Size(self.sharding.shape)

    @property
    def ndim(self) -> int:
        """Of the whole tensor, as of the rows."""
        return len(self.sharding.shape)

    @property
    def nbytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.sharding.shape) * self.rows.itemsize

    def to_local(self) -> Tensor:
        """This rank's rows as a plain tensor that shares their memory."""
        return self.rows.detach()

    def full_tensor(self) -> Tensor:
        """The whole tensor; all ranks of the mesh call it.

        The gradient of the rows is that of the whole, averaged over the ranks, as a loss is.
        """
        return _gathered(self.rows, self.sharding)

    # --- as Tensor has it, by rows ------------------------------------------------------------

    def _edge(self) -> tuple[Any, int]:
        return self.rows._edge()

    def detach(self) -> DTensor:
        """The same rows and memory, apart from the graph."""
        return as_rows(self.rows.detach(), self.sharding)

    def clone(self, **options: Any) -> DTensor:
        """A copy of the rows."""
        return as_rows(self.rows.clone(**options), self.sharding)

    def cpu(self) -> DTensor:
        """The rows in memory of the host."""
        return as_rows(self.rows.cpu(), self.sharding)

    def to(self, *args: Any, **options: Any) -> DTensor:
        """The rows on a device, or of a dtype."""
        moved = self.rows.to(*args, **options)
        return self if moved is self.rows else as_rows(moved, self.sharding)

    def requires_grad_(self, requires_grad: bool = True) -> DTensor:
        """Mark a leaf as wanting a gradient, or not."""
        self.rows.requires_grad_(requires_grad)
        return self

    def _mark(self, requires_grad: bool = True, *_: Any) -> DTensor:
        return self.requires_grad_(requires_grad)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Any:
        """Call ``hook(grad)`` with the gradient, a `DTensor`; it may return another."""
        return self.rows.register_hook(_hook_of_rows(hook, self.sharding))

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Any:
        """Call ``hook(tensor)`` after a gradient was added to this leaf's ``.grad``."""
        register = Tensor.register_post_accumulate_grad_hook
        handle = overrides.without_handlers(register, self, hook)
        self._edge()[0].refer_to(self)
        return handle

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the rows, a `DTensor`."""
        gradient = self.rows.grad
        if gradient is None:
            return None
        shown = fields(self).get("_shown_grad")
        if shown is None or shown.rows is not gradient:
            shown = self._shown_grad = as_rows(gradient, self.sharding)
        return cast("Tensor", shown)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.rows.grad = None if value is None else _rows_in(value, self.sharding)

    @grad.deleter
    def grad(self) -> None:
        self.rows.grad = None

    @property
    def data(self) -> Tensor:
        """The same rows and memory apart from the graph; writes to it are not counted here."""
        return as_rows(self.rows.data, self.sharding)

    @data.setter
    def data(self, value: Tensor) -> None:
        self.rows.data = _rows_in(value, self.sharding)

    # --- as Tensor has it, of the whole -------------------------------------------------------

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.full_tensor())

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _by_whole(function, args, kwargs)

    def _array_ufunc(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _by_whole(getattr(ufunc, method), inputs, options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = other = _kind_of(type(self), self.rows.detach().clone(), self.sharding)
        return other.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _refusal("pickle", self, "; distributed.checkpoint.save writes rows")

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError(*_refusal("__cuda_array_interface__", self).args)

    def __repr__(self) -> str:
        return (
            f"DTensor(local_tensor={self.to_local()!r}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )


def _of_rows(name: str) -> Any:
    def write(self: DTensor, value: Any) -> None:
        setattr(self.rows, name, value)

    return property(operator.attrgetter(f"rows.{name}"), write if name == "requires_grad" else None)


def _of_whole(name: str) -> Any:
    return property(lambda self: getattr(self.full_tensor(), name))


_MARKS = """_grad _grad_fn _version device dtype grad_fn is_cpu is_cuda is_leaf is_meta itemsize
    output_nr requires_grad retains_grad"""
for _name in _MARKS.split():
    setattr(DTensor, _name, _of_rows(_name))
for _name in ("H", "T", "mH", "mT", "real", "imag"):
    setattr(DTensor, _name, _of_whole(_name))


def _kind_of(kind: type[DTensor], rows: Tensor, sharding: Sharding) -> Any:
    """A tensor of a class of which this rank has these rows."""
    _start_asking()
    made = object.__new__(kind)
    made.rows, made.sharding = rows, sharding
    return made


def as_rows(rows: Tensor, sharding: Sharding) -> Any:
    """A larger tensor, of which this rank has computed the rows."""
    return _kind_of(DTensor, rows, sharding)


def take_over(tensor: Tensor, kind: type[DTensor], sharding: Sharding) -> None:
    """Let a leaf, which stays the same object with its hooks, be one of which ranks keep rows."""
    store_written(tensor)
    forget_stored()
    with no_grad():
        rows = tensor.detach()[slice(*sharding.rows())].clone()
    rows._realize()
    leaf = tensor._edge()[0]
    if leaf is not None:
        node = rows.requires_grad_()._edge()[0]
        node._hooks, node.post_accumulate = leaf._hooks, leaf.post_accumulate
        node.refer_to(tensor)
        for hooks in () if node._hooks is None else node._hooks.tensor.values():
            hooks.update({key: _hook_of_rows(hook, sharding) for key, hook in hooks.items()})
    if tensor._storage is not None:
        tensor._storage.forget(tensor)
    own = fields(tensor)
    kept = overrides.user_attributes(own)
    own.clear()
    del tensor._expr
    own.update(kept, rows=rows, sharding=sharding)
    tensor.__class__ = kind
    _start_asking()


def _hook_of_rows(hook: Callable[[Tensor], Any], sharding: Sharding) -> Callable[[Tensor], Any]:
    """A hook that is shown the gradient of rows as a `DTensor`."""

    def of_rows(gradient: Tensor) -> Any:
        answer = hook(as_rows(gradient, sharding))
        return None if answer is None else _rows_in(answer, sharding)

    return of_rows


@functools.cache
def _start_asking() -> None:
    """From the first such tensor on, ops ask who overrides them; not in other programs."""
    overrides.subclass(DTensor)


def _rows_in(value: Any, sharding: Sharding) -> Tensor:
    """This rank's rows of a `DTensor`, or of a whole tensor."""
    if isinstance(value, DTensor):
        if value.sharding != sharding:
            raise RuntimeError(
                f"a tensor of shape {list(value.shape)} on {value.device_mesh} does not lie as one "
                f"of shape {list(sharding.shape)} on {sharding.mesh}"
            )
        return value.rows
    if tuple(value.shape) != sharding.shape:
        raise RuntimeError(
            f"expected a tensor of the whole shape {list(sharding.shape)}, which ranks share, but "
            f"got {list(value.shape)}"
        )
    return cast("Tensor", value[slice(*sharding.rows())].clone())


def _refusal(name: str, tensor: DTensor, more: str = "") -> RuntimeError:
    return RuntimeError(
        f"{name}: each rank holds some rows of this tensor of shape {list(tensor.shape)}. Write "
        "x.full_tensor(), which all ranks must call, for the whole, or x.to_local() for this "
        f"rank's rows{more}"
    )


# --- ops ----------------------------------------------------------------------------------------

# What hands out memory, or gives the tensor other memory; what the rows answer as the whole does;
# what the shape answers; and what computes each element by itself, beside the rows of the op table.
_OF_MEMORY = """data_ptr storage untyped_storage storage_type numpy cupy to_numpy __array__
    __dlpack__ pin_memory share_memory_ resize_ resize_as_ set_ record_stream backward"""
_OF_ANY = """is_floating_point is_complex is_signed element_size get_device is_inference is_conj
    is_neg is_pinned is_shared retain_grad __dlpack_device__"""
_OF_SHAPE = """size numel nelement dim ndimension stride storage_offset is_contiguous is_same_size
    dim_order __len__"""
_LIKE = "zeros_like ones_like empty_like full_like"
_ELEMENTWISE = """lerp addcmul addcdiv clamp clip nan_to_num multiply divide true_divide subtract
    negative masked_fill copy fill zero double float half bfloat16 contiguous positive"""
_of_memory, _of_any, _of_shape, _like = [
    frozenset(names.split()) for names in (_OF_MEMORY, _OF_ANY, _OF_SHAPE, _LIKE)
]
_elementwise = frozenset((*TABLE, *_ELEMENTWISE.split(), *_like))


def _answer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an op gives for tensors of which ranks hold rows."""
    name, first = func.__name__, args[0] if args else None
    if isinstance(first, DTensor):
        own = vars(DTensor).get(name)
        if callable(own):
            return own(*args, **kwargs)
        if name in _of_memory:
            raise _refusal(name, first)
        if name in _of_any or (name == "type" and not args[1:] and not kwargs):
            return func(first.rows, *args[1:], **kwargs)
    if name in _of_shape:
        return func(*_mapped(args, _without_memory), **_mapped(kwargs, _without_memory))
    if func.__module__ == "lucid_gpu.autograd.grad":
        return _gradients(func, *args, **kwargs)
    answer = _by_rows(func, name, args, kwargs)
    return _by_whole(func, args, kwargs) if answer is overrides.UNHANDLED else answer


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with the tensors inside tuples, lists and dictionaries changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        parts = [_mapped(one, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value) is dict:
        return {key: _mapped(one, change) for key, one in value.items()}
    return value


def _without_memory(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    return empty(tensor.sharding.shape, dtype=tensor.dtype, device="meta")


def _gradients(differentiate: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`autograd.grad`: gradients by rows are rows."""
    single = isinstance(inputs, Tensor)
    targets = [inputs] if single else list(inputs.values() if type(inputs) is dict else inputs)
    rows = [t.rows if isinstance(t, DTensor) else t for t in targets]
    found = [
        g if g is None or not isinstance(t, DTensor) else as_rows(g, t.sharding)
        for g, t in zip(differentiate(outputs, rows, *args, **kwargs), targets, strict=True)
    ]
    return dict(zip(inputs, found, strict=True)) if type(inputs) is dict else tuple(found)


def _by_rows(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An elementwise op by rows, where its operands have the same and nothing is recorded."""
    if (name if name[:2] == "__" else name.rstrip("_")) not in _elementwise:
        return overrides.UNHANDLED
    tensors: list[Any] = []
    _mapped((args, kwargs), tensors.append)
    shardings = [t.sharding for t in tensors if isinstance(t, DTensor)]
    sharding = shardings[0]
    recorded = state.grad and name not in _like and any(t.requires_grad for t in tensors)
    if recorded or any(other != sharding for other in shardings):
        return overrides.UNHANDLED
    if any(t.ndim and tuple(t.shape) != sharding.shape for t in tensors):
        return overrides.UNHANDLED
    shown: dict[int, DTensor] = {}

    def part(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor[slice(*sharding.rows())] if tensor.ndim else tensor
        local = tensor.to_local()
        shown[id(local)] = tensor
        return local

    parts = _mapped((args, kwargs), part)
    result = func(*parts[0], **parts[1])
    if id(result) in shown:
        return shown[id(result)]
    alike = isinstance(result, Tensor) and tuple(result.shape) == sharding.local_shape
    return as_rows(result, sharding) if alike else overrides.UNHANDLED  # where(x): indices


def _by_whole(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An op on whole tensors; what it writes becomes rows again."""
    wholes: dict[int, tuple[DTensor, Tensor, int]] = {}

    def whole(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        if id(tensor) not in wholes:
            value = tensor.full_tensor()
            wholes[id(tensor)] = tensor, value, value._memory().version
        return wholes[id(tensor)][1]

    recorded = state.grad and func.__module__ != "lucid_gpu.nn.init"  # which records nothing
    with set_grad_enabled(recorded):
        parts = _mapped((args, kwargs), whole)
        result = func(*parts[0], **parts[1])
    for tensor, value, version in wholes.values():
        if value._memory().version != version:
            _write_rows(tensor, value, func.__name__, recorded)
    shown = {id(value): tensor for tensor, value, _ in wholes.values()}
    memories = [value._memory() for _, value, _ in wholes.values()]

    def result_of(tensor: Tensor) -> Tensor:
        if id(tensor) in shown:
            return shown[id(tensor)]
        if any(tensor._storage is memory for memory in memories):
            tensor._memory().lend(tensor._cell(), forever=True)
            tensor._memory().read_only = _PART  # nobody would tell the rows
        return tensor

    return _mapped(result, result_of)


def _write_rows(tensor: DTensor, whole: Tensor, name: str, recorded: bool) -> None:
    """Take this rank's rows of what an in-place op has made of the whole."""
    if recorded and tensor.requires_grad:
        raise RuntimeError(
            f"{LEAF_IN_PLACE} {name} changes one of shape {list(tensor.shape)}, of which ranks "
            "hold rows; do it under lucid_gpu.no_grad(), or out of place."
        )
    if tuple(whole.shape) != tensor.sharding.shape:
        raise _refusal(f"{name} changes the shape", tensor)
    local = tensor.to_local()
    local.copy_(whole.detach()[slice(*tensor.sharding.rows())])
    mesh = tensor.device_mesh
    if mesh.ndim == 2:  # copies stay equal, whatever random numbers each has drawn
        broadcast(local, group=mesh.get_group(0), group_src=0)


_PART = (
    "each rank holds some rows of this tensor, or of the one that it is a part of, and would not "
    "see this write. Write the tensor itself, x[0] = 1 or x.copy_(values), or a clone of the part"
)


def _gathered(rows: Tensor, sharding: Sharding) -> Tensor:
    """The whole tensor of rows, whose gradient is averaged over the ranks."""
    whole = Gathering([rows.detach()], [sharding]).wait()[0]

    def vjp(node: Any, gradient: Tensor) -> list[Tensor]:
        return [_averaged(gradient, sharding)]

    result: Tensor = record("_GatheredBackward", whole.array, [rows], vjp, dtype=rows.dtype)
    return result


def _averaged(whole: Tensor, sharding: Sharding) -> Tensor:
    """This rank's rows of the mean of a tensor over the ranks.

    What comes back goes to each rank's tensor whole: gradients of the ranks' losses are averaged.
    """
    rows = next(mean_of_rows([whole], [sharding], whole.dtype, whole))
    assert rows is not None

    def vjp(node: Any, gradient: Tensor) -> list[Tensor]:
        return [_gathered(gradient, sharding)]

    result: Tensor = record("_AveragedBackward", rows.array, [whole], vjp, dtype=whole.dtype)
    return result


def mean_of_rows(
    gradients: Sequence[Tensor | None], shardings: Sequence[Sharding], kind: DType, like: Tensor
) -> Iterator[Tensor | None]:
    """This rank's rows of the means of whole gradients, of one type and device; all ranks call it.

    Beside the rows, a number for each says whether any rank has it: it stays None where none has.

    Parameters
    ----------
    gradients : sequence of Tensor or None
    shardings : sequence of Sharding
        Of one mesh, and one `Sharding.divisor`.
    kind : dtype
        To add in.
    like : Tensor
        One of the device and dtype of the results.
    """
    mesh, divisor, ranks = shardings[0].mesh, shardings[0].divisor, shardings[0].ranks
    columns = []
    for gradient, sharding in zip(gradients, shardings, strict=True):
        elements = ranks * sharding.most * sharding.width
        if gradient is None:
            columns.append(zeros(ranks, elements // ranks, dtype=kind, device=like.device))
            continue
        flat = gradient.detach().reshape(-1)
        missing = elements - flat.numel()
        flat = cat([flat, flat.new_zeros(missing)]) if missing else flat
        columns.append(flat.view(ranks, -1))
    used = [float(gradient is not None) for gradient in gradients]
    columns.append(columns[0].new_tensor(used).expand(ranks, -1))
    whole = cat(columns, 1)
    part = whole.new_empty(whole.shape[1])
    op = ReduceOp.AVG if divisor is None else ReduceOp.SUM
    reduce_scatter_tensor(part, whole, op, group=shardings[0].group)
    if mesh.ndim == 2:
        all_reduce(part, op, group=mesh.get_group(0))
    if divisor is not None:
        part = part / divisor
    flags, start = part[part.numel() - len(shardings) :].tolist(), 0
    for sharding, flag in zip(shardings, flags, strict=True):
        rows = part[start : start + sharding.count() * sharding.width]
        start += sharding.most * sharding.width
        array = rows.to(like.dtype).array.reshape(sharding.local_shape)
        yield from_array(array, like.dtype, like.device) if flag else None


class Gathering:
    """Rows of several tensors, of one dtype and group, on their way to all ranks."""

    def __init__(self, locals_: Sequence[Tensor], shardings: Sequence[Sharding]) -> None:
        self.shardings = shardings
        first = locals_[0]
        with no_grad():
            flat = cat([padded(t, s) for t, s in zip(locals_, shardings, strict=True)])
            ranks = shardings[0].ranks
            self.whole = empty(ranks, flat.numel(), dtype=first.dtype, device=first.device)
            self.work = all_gather_into_tensor(
                self.whole, flat, group=shardings[0].group, async_op=True
            )

    def wait(self) -> list[Tensor]:
        """The whole tensors, each with memory of its own."""
        self.work.wait()  # type: ignore[union-attr]
        tensors, start = [], 0
        with no_grad():
            for sharding in self.shardings:
                width = sharding.width
                parts = [
                    self.whole[rank, start : start + sharding.count(rank) * width]
                    for rank in range(self.whole.shape[0])
                ]
                flat = cat(parts)
                array = flat.array.reshape(sharding.shape)
                tensors.append(from_array(array, flat.dtype, flat.device))
                start += sharding.most * width
        return tensors


def norm_of_rows(
    tensors: Sequence[Any], order: float, norm: Callable[[list[Tensor], float], Tensor]
) -> list[Tensor]:
    """The norms of whole tensors of which each rank holds rows, one for each group of ranks."""
    if order <= 0:
        raise NotImplementedError(
            f"get_total_norm(): norm_type={order} of tensors that ranks share; it must be positive"
        )
    groups_: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        groups_.setdefault(tensor.sharding.group, []).append(tensor.to_local())
    norms = []
    for group, rows in groups_.items():
        some = [t for t in rows if t.numel()]
        total = norm(some, order) if some else rows[0].new_zeros(())
        total = total.double()  # one dtype, whatever rows a rank has
        if math.isinf(order):
            all_reduce(total, ReduceOp.MAX, group)
        else:
            total = total**order
            all_reduce(total, group=group)
            total = total ** (1 / order)
        norms.append(total.to(rows[0].dtype))
    return norms


def largest_of_ranks(tensor: Tensor, group: Any) -> None:
    """Replace a tensor by the largest that ranks have."""
    all_reduce(tensor, ReduceOp.MAX, group)


def padded(local: Tensor, sharding: Sharding) -> Tensor:
    """Rows, flat, with zeros for those that other ranks have more."""
    flat = local.detach().reshape(-1)
    missing = sharding.most * sharding.width - flat.numel()
    return cat([flat, flat.new_zeros(missing)]) if missing else flat


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Any] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """This rank's rows of a whole tensor.

    Parameters
    ----------
    tensor : Tensor, of one shape on all ranks
    device_mesh : DeviceMesh, optional
        Of one dimension; all ranks by default.
    placements : sequence, optional
        ``[Shard(0)]``.
    src_data_rank : int, optional
        The rank of the mesh whose values are dealt out; None lets each rank take its rows of its
        own.

    Raises
    ------
    NotImplementedError
        For other placements.
    """
    mesh = device_mesh or init_device_mesh(tensor.device.type, (_world(),))
    if mesh.ndim != 1 or tuple(placements or (Shard(0),)) != (Shard(0),):
        raise NotImplementedError(
            f"distribute_tensor: placements {tuple(placements or ())} on a mesh of "
            f"{mesh.ndim} dimensions; write [Shard(0)] on one of one dimension"
        )
    sharding = Sharding(mesh, tuple(tensor.shape))
    with no_grad():
        if src_data_rank is None:
            start, end = sharding.rows()
            return as_rows(tensor[start:end].clone(), sharding)
        ranks, width = mesh.size(), sharding.width
        into = tensor.new_empty(sharding.most * width)
        parts = None
        if mesh.get_local_rank() == src_data_rank:
            parts = [padded(tensor[slice(*sharding.rows(r))], sharding) for r in range(ranks)]
        scatter(into, parts, group=sharding.group, group_src=src_data_rank)
        local = into[: sharding.count() * width]
        return as_rows(local.reshape(sharding.local_shape).clone(), sharding)


def _world() -> int:
    if not groups.is_initialized():
        groups.init_process_group()
    return groups.get_world_size()
