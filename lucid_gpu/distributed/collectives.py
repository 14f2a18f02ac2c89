"""Collectives and messages on tensors: checked, handed to an engine.

Tensors may have any layout; row-major ones are read and written where they are, unless they are on
a GPU and travel by way of the host. What is written counts as written in place: its version goes
up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend, cuda_memory
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.distributed import groups
from lucid_gpu.distributed.engines import Done
from lucid_gpu.distributed.engines.nccl import NCCLEngine, Passing
from lucid_gpu.distributed.errors import DistBackendError
from lucid_gpu.distributed.groups import ProcessGroup
from lucid_gpu.distributed.reductions import ReduceOp, check_op
from lucid_gpu.distributed.watch import Call
from lucid_gpu.distributed.work import StreamWork, Work
from lucid_gpu.ops.in_place import refuse_overlap
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor, from_array

# --- checks, before anything travels ------------------------------------------------------------


def _check_tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )
    if value._is_sparse:
        raise NotImplementedError(f"`{name}` is sparse; call .to_dense() first")


def _check_list(value: Any, name: str) -> None:
    if not isinstance(value, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(value)} instead."
        )
    if not all(isinstance(one, Tensor) for one in value):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(value)} with elements of type "
            f"{[type(one) for one in value]}."
        )
    for one in value:
        _check_tensor(one, name)


def _check_written(tensors: Sequence[Tensor], name: str) -> None:
    """Raise where an element of a result has several places, before other ranks wait for it."""
    for tensor in tensors:
        refuse_overlap(tensor.array, name)


def _check_types(*tensors: Tensor) -> None:
    for one in tensors[1:]:
        if one.dtype != tensors[0].dtype:
            raise ValueError(
                "Invalid usage of tensors with different dtypes"
                f"Found {tensors[0].dtype} and  {one.dtype}"
            )


def _check_parts(name: str, parts: Sequence[Tensor], like: Tensor, size: int) -> None:
    """Raise where a list has not one tensor of as many elements for each rank."""
    if len(parts) != size:
        raise ValueError(f"{name}: needs a tensor for each of {size} ranks, got {len(parts)}")
    for i, part in enumerate(parts):
        if part.numel() != like.numel():
            raise ValueError(
                f"{name}: tensor {i} has shape {list(part.shape)}, expected {list(like.shape)}"
            )


def group_rank_of(
    group: ProcessGroup, rank: int | None, group_rank: int | None, default: int | None = None
) -> int:
    """The rank in the group that ``rank`` (of the default group) or ``group_rank`` names."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        if not 0 <= group_rank < group.size():
            raise ValueError(f"Group rank {group_rank} is not part of group {group}")
        return group_rank
    if rank is None:
        rank = default
    if rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return groups.get_group_rank(group, rank)


def other_rank(group: ProcessGroup, rank: int, kind: str) -> int:
    """A rank, which must not be this process's."""
    if rank == group.rank():
        raise ValueError(
            f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current "
            "process."
        )
    return rank


# --- to arrays that an engine takes, and back ----------------------------------------------------


def _read(tensor: Tensor, where: device) -> Any:
    """The values on a device, row-major: the tensor's own memory, where they are so there."""
    array = (tensor if tensor.device == where else tensor.detach().to(where)).array
    return array if array.flags.c_contiguous else array.copy()


def _apart(array: Any, into: Any, where: device) -> Any:
    """An array, copied where it shares memory with another: MPI takes no such pair."""
    return array.copy() if backend(where).xp.may_share_memory(array, into) else array


def _written(
    tensor: Tensor, name: str, where: device, reads: bool = True
) -> tuple[Any, Callable[[], None] | None]:
    """An array that becomes a tensor's value, and what brings it there.

    That is the tensor's own memory, and nothing remains to be done, where it is row-major on the
    device. ``reads`` where the array is to hold the value there is.
    """
    if tensor.device == where and tensor.is_contiguous():
        own = tensor._writable(name)
        if own.flags.c_contiguous:
            return own, None
    array = _read(tensor, where).copy() if reads else _room(tensor.numel(), tensor, where)
    return array, lambda: _put(tensor, array, where)


def _room(count: int, like: Tensor, where: device) -> Any:
    return backend(where).empty((count,), like.dtype, where)


def _put(tensor: Tensor, array: Any, where: device) -> None:
    _record(array, where)
    _copy(tensor, array, where)


def _put_parts(tensors: Sequence[Tensor], array: Any, where: device) -> None:
    """Cut a flat array into as many parts as there are tensors."""
    _record(array, where)
    start = 0
    for tensor in tensors:
        # A copy: the tensors take the memory, and it must not keep the others' alive.
        _copy(tensor, array[start : start + tensor.numel()].copy(), where)
        start += tensor.numel()


def _record(array: Any, where: device) -> None:
    """Keep memory for the current stream, which may be another than it was allocated on."""
    if where.type == "cuda":
        stream = backend(where).xp.cuda.get_current_stream(where.index)
        cuda_memory.record_stream(array, stream)


def _copy(tensor: Tensor, array: Any, where: device) -> None:
    with no_grad():
        shaped = array.reshape(tuple(tensor.shape))
        tensor.detach().copy_(from_array(shaped, tensor.dtype, where))


def joined(tensors: Sequence[Tensor], where: device) -> Any:
    """The values of several tensors in one flat array."""
    arrays = [_read(tensor, where).reshape(-1) for tensor in tensors]
    into = _room(sum(array.size for array in arrays), tensors[0], where)
    return backend(where).xp.concatenate(arrays, out=into)


def _begun(
    call: Call,
    group: ProcessGroup,
    done: Done,
    results: Sequence[Tensor] = (),
    finish: Callable[[], None] | None = None,
    async_op: bool = False,
    timeout: timedelta | None = None,
) -> Work | None:
    """The work, or None once it is done."""
    group.progress()
    engine = group.engine
    agreement = engine.agree(call) if call.number else None
    limit = timeout or group.timeout
    kind = StreamWork if isinstance(done, Passing) else Work
    work = kind(call, [done], limit, finish, results, engine.watch, agreement)
    if isinstance(work, StreamWork):
        assert group.nccl is not None
        group.nccl.guard(work)
    if async_op or isinstance(work, StreamWork):  # the host has not waited
        group.under_way.append(work)
    if async_op:
        return work
    work.wait()
    return None


# --- collectives --------------------------------------------------------------------------------


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine a tensor of all ranks, in place on each rank.

    Parameters
    ----------
    tensor : Tensor, any shape
        Of the same shape and dtype on all ranks.
    op : ReduceOp
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError, RuntimeError
        For an ``op`` that is unknown or not defined for the dtype, and for a tensor whose elements
        share memory, as those of an expanded one do.
    """
    pg = groups.resolved(group, "all_reduce")
    _check_tensor(tensor, "tensor")
    if pg is None:
        return None
    op = check_op("all_reduce", op, tensor.dtype)
    _check_written([tensor], "all_reduce")
    engine, where = pg.engine_of(tensor.device)
    array, finish = _written(tensor, "all_reduce", where)
    done = engine.all_reduce(array, op)
    call = pg.call("all_reduce", tensor, op, size=tensor.numel())
    return _begun(call, pg, done, [tensor], finish, async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Combine each of several tensors in one operation, in place on each rank.

    Parameters
    ----------
    tensors : Tensor or list of Tensor, any shapes
        Of one dtype; of the same shapes on all ranks.
    op : ReduceOp
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return a future immediately.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        For tensors of different dtypes; see also `all_reduce`.
    """
    pg = groups.resolved(group, "all_reduce_coalesced")
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    _check_list(tensors, "tensors")
    _check_types(*tensors)
    if pg is None or not tensors:
        return None
    op = check_op("all_reduce", op, tensors[0].dtype)
    _check_written(tensors, "all_reduce_coalesced")
    engine, where = pg.engine_of(tensors[0].device)
    flat = joined(tensors, where)
    done = engine.all_reduce(flat, op)
    call = pg.call("all_reduce_coalesced", tensors[0], op, size=flat.size)
    finish = partial(_put_parts, tensors, flat, where)
    work = _begun(call, pg, done, tensors, finish, async_op)
    return None if work is None else work.get_future()


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copy the tensor of one rank to all ranks, in place.

    Parameters
    ----------
    tensor : Tensor, any shape
        Read on rank ``src``, written on all others; of the same shape and dtype on all ranks.
    src : int, optional
        A rank of the default group.
    group_src : int, optional
        A rank of ``group``, instead of ``src``.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError
        Unless exactly one of ``src`` and ``group_src`` is given, and names a rank of the group.
    """
    pg = groups.resolved(group, "broadcast")
    _check_tensor(tensor, "tensor")
    if pg is None:
        return None
    root = group_rank_of(pg, src, group_src)
    mine = root == pg.rank()
    if not mine:
        _check_written([tensor], "broadcast")
    engine, where = pg.engine_of(tensor.device)
    if mine:
        array, finish = _read(tensor, where), None
    else:
        array, finish = _written(tensor, "broadcast", where, False)
    done = engine.broadcast(array, root)
    call = pg.call("broadcast", tensor, None, root, tensor.numel())
    return _begun(call, pg, done, [tensor], finish, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine a tensor of all ranks, in place on one rank; the others keep theirs.

    Parameters
    ----------
    tensor : Tensor, any shape
        Of the same shape and dtype on all ranks.
    dst : int, optional
        A rank of the default group.
    op : ReduceOp
    group_dst : int, optional
        A rank of ``group``, instead of ``dst``.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError, RuntimeError
        For another number than one of ``dst`` and ``group_dst``, and see `all_reduce`.
    """
    pg = groups.resolved(group, "reduce")
    _check_tensor(tensor, "tensor")
    if pg is None:
        return None
    root = group_rank_of(pg, dst, group_dst)
    op = check_op("reduce", op, tensor.dtype)
    mine = root == pg.rank()
    if mine:
        _check_written([tensor], "reduce")
    engine, where = pg.engine_of(tensor.device)
    array, finish = _written(tensor, "reduce", where) if mine else (_read(tensor, where), None)
    done = engine.reduce(array, op, root)
    call = pg.call("reduce", tensor, op, root, tensor.numel())
    return _begun(call, pg, done, [tensor], finish, async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks to a list of tensors, one for each rank.

    Parameters
    ----------
    tensor_list : list of Tensor
        Written; each with as many elements as ``tensor``, and of its dtype.
    tensor : Tensor, any shape
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, or lists of tensors, and for sparse tensors.
    ValueError
        For another number of tensors than of ranks, or other dtypes or numbers of elements.
    """
    pg = groups.resolved(group, "all_gather")
    _check_list(tensor_list, "tensor_list")
    _check_tensor(tensor, "tensor")
    _check_types(tensor, *tensor_list)
    if pg is None:
        return None
    _check_parts("all_gather", tensor_list, tensor, pg.size())
    _check_written(tensor_list, "all_gather")
    engine, where = pg.engine_of(tensor.device)
    array = _read(tensor, where)
    into = _room(array.size * pg.size(), tensor, where)
    done = engine.all_gather(into, array)
    call = pg.call("all_gather", tensor, size=tensor.numel())
    finish = partial(_put_parts, tensor_list, into, where)
    return _begun(call, pg, done, tensor_list, finish, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks to one tensor, one after the other.

    Parameters
    ----------
    output_tensor : Tensor
        Written; with as many elements as the tensors of all ranks together.
    input_tensor : Tensor, any shape
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError
        For another number of elements, or another dtype.
    """
    pg = groups.resolved(group, "all_gather_into_tensor")
    _check_tensor(input_tensor, "input_tensor")
    _check_tensor(output_tensor, "output_tensor")
    _check_types(input_tensor, output_tensor)
    if pg is None:
        return None
    _check_sizes("all_gather_into_tensor", output_tensor, input_tensor, pg.size())
    _check_written([output_tensor], "all_gather_into_tensor")
    engine, where = pg.engine_of(output_tensor.device)
    into, finish = _written(output_tensor, "all_gather_into_tensor", where, False)
    done = engine.all_gather(into, _apart(_read(input_tensor, where), into, where))
    call = pg.call("all_gather_into_tensor", input_tensor, size=input_tensor.numel())
    return _begun(call, pg, done, [output_tensor], finish, async_op)


def _check_sizes(name: str, whole: Tensor, part: Tensor, size: int) -> None:
    if whole.numel() != size * part.numel():
        raise ValueError(
            f"{name}: {size} ranks of shape {list(part.shape)} make {size * part.numel()} "
            f"elements, got a tensor of shape {list(whole.shape)}"
        )


all_gather_single = _all_gather_base = all_gather_into_tensor


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the tensors of all ranks to a list of tensors on one rank.

    Parameters
    ----------
    tensor : Tensor, any shape
    gather_list : list of Tensor, optional
        Written; on rank ``dst`` one tensor for each rank, with as many elements as ``tensor``. Not
        given on the others.
    dst : int, optional
        A rank of the default group; 0 by default.
    group_dst : int, optional
        A rank of ``group``, instead of ``dst``.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, or lists of tensors, and for sparse tensors.
    ValueError
        For a list on another rank, none on ``dst``, or tensors that do not match.
    """
    pg = groups.resolved(group, "gather")
    _check_tensor(tensor, "tensor")
    parts = gather_list or []
    _check_list(parts, "gather_list")
    _check_types(tensor, *parts)
    if pg is None:
        return None
    root = group_rank_of(pg, dst, group_dst, 0)
    mine = root == pg.rank()
    if mine and not parts:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if parts and not mine:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    engine, where = pg.engine_of(tensor.device)
    array, into = _read(tensor, where), None
    if mine:
        _check_parts("gather", parts, tensor, pg.size())
        _check_written(parts, "gather")
        into = _room(array.size * pg.size(), tensor, where)
    done = engine.gather(into, array, root)
    finish = partial(_put_parts, parts, into, where) if mine else None
    call = pg.call("gather", tensor, None, root, tensor.numel())
    return _begun(call, pg, done, parts, finish, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Send each rank one tensor of a list on one rank.

    Parameters
    ----------
    tensor : Tensor, any shape
        Written.
    scatter_list : list of Tensor, optional
        On rank ``src`` one tensor for each rank, with as many elements as ``tensor``. Not given on
        the others.
    src : int, optional
        A rank of the default group; 0 by default.
    group_src : int, optional
        A rank of ``group``, instead of ``src``.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, or lists of tensors, and for sparse tensors.
    ValueError
        For a list on another rank, none on ``src``, or tensors that do not match.
    """
    pg = groups.resolved(group, "scatter")
    _check_tensor(tensor, "tensor")
    parts = scatter_list or []
    _check_list(parts, "scatter_list")
    _check_types(tensor, *parts)
    if pg is None:
        return None
    root = group_rank_of(pg, src, group_src, 0)
    mine = root == pg.rank()
    if mine and not parts:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if parts and not mine:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    _check_written([tensor], "scatter")
    if mine:
        _check_parts("scatter", parts, tensor, pg.size())
    engine, where = pg.engine_of(tensor.device)
    whole = joined(parts, where) if mine else None
    into, finish = _written(tensor, "scatter", where, False)
    done = engine.scatter(into, whole, root)
    call = pg.call("scatter", tensor, None, root, tensor.numel())
    return _begun(call, pg, done, [tensor], finish, async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the lists of all ranks; each rank receives the combined tensor of its own number.

    Parameters
    ----------
    output : Tensor, any shape
        Written.
    input_list : list of Tensor
        One tensor for each rank, with as many elements as ``output`` and of its dtype.
    op : ReduceOp
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, or lists of tensors, and for sparse tensors.
    ValueError, RuntimeError
        For tensors that do not match, and see `all_reduce`.
    """
    pg = groups.resolved(group, "reduce_scatter")
    _check_tensor(output, "output")
    _check_list(input_list, "input_list")
    _check_types(output, *input_list)
    if pg is None:
        return None
    _check_parts("reduce_scatter", input_list, output, pg.size())
    return _reduce_scatter("reduce_scatter", output, joined, input_list, op, pg, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine the tensors of all ranks; each rank receives one part of the result.

    Parameters
    ----------
    output : Tensor, any shape
        Written.
    input : Tensor
        With as many elements as the outputs of all ranks together, and of their dtype.
    op : ReduceOp
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError, RuntimeError
        For tensors that do not match, and see `all_reduce`.
    """
    pg = groups.resolved(group, "reduce_scatter_tensor")
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _check_types(output, input)
    if pg is None:
        return None
    _check_sizes("reduce_scatter_tensor", input, output, pg.size())
    return _reduce_scatter("reduce_scatter_tensor", output, _read, input, op, pg, async_op)


reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor


def _reduce_scatter(
    name: str,
    output: Tensor,
    read: Callable[[Any, device], Any],
    source: Any,
    op: Any,
    group: ProcessGroup,
    async_op: bool,
) -> Work | None:
    op = check_op("reduce_scatter", op, output.dtype)
    _check_written([output], name)
    engine, where = group.engine_of(output.device)
    whole = read(source, where).reshape(-1)
    into, finish = _written(output, name, where, False)
    done = engine.reduce_scatter(into, _apart(whole, into, where), op)
    call = group.call(name, output, op, size=output.numel())
    return _begun(call, group, done, [output], finish, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send each rank some rows of a tensor, and receive rows from each.

    Parameters
    ----------
    output : Tensor, shape (rows received, ...)
        Written.
    input : Tensor, shape (rows sent, ...)
    output_split_sizes, input_split_sizes : sequence of int, optional
        The number of rows for each rank; by default the same for all.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, and for sparse tensors.
    ValueError, RuntimeError
        For tensors of different dtypes, and numbers of rows that do not match the tensors.
    """
    pg = groups.resolved(group, "all_to_all_single")
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _check_types(output, input)
    if pg is None:
        return None
    receives = _splits(output, output_split_sizes, pg.size())
    sends = _splits(input, input_split_sizes, pg.size())
    _check_written([output], "all_to_all_single")
    engine, where = pg.engine_of(output.device)
    into, finish = _written(output, "all_to_all_single", where, False)
    array = _apart(_read(input, where).reshape(-1), into, where)
    done = engine.all_to_all(into, array, receives, sends)
    call = pg.call("all_to_all_single", output)
    return _begun(call, pg, done, [output], finish, async_op)


def _splits(tensor: Tensor, rows: Sequence[int] | None, size: int) -> list[int]:
    """How many elements of a tensor belong to each rank."""
    count = tensor.shape[0] if tensor.dim() else 1
    if not rows:
        if count % size:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return [tensor.numel() // size] * size
    if len(rows) != size:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(rows) != count:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    row = tensor.numel() // count if count else 0
    return [int(n) * row for n in rows]


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send one tensor to each rank, and receive one from each.

    Parameters
    ----------
    output_tensor_list : list of Tensor
        Written; element ``i`` has as many elements as the tensor that rank ``i`` sends.
    input_tensor_list : list of Tensor, any shapes
        Element ``i`` is sent to rank ``i``.
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; the result is complete after `Work.wait`.

    Returns
    -------
    Work or None
        A handle with ``async_op``, else None. None also if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For arguments that are not tensors, or lists of tensors, and for sparse tensors.
    ValueError
        For other numbers of tensors than of ranks, and tensors of different dtypes.
    """
    pg = groups.resolved(group, "all_to_all")
    _check_list(output_tensor_list, "output_tensor_list")
    _check_list(input_tensor_list, "input_tensor_list")
    _check_types(*output_tensor_list, *input_tensor_list)
    if pg is None:
        return None
    for tensors in (output_tensor_list, input_tensor_list):
        if len(tensors) != pg.size():
            raise ValueError(
                f"all_to_all: needs a tensor for each of {pg.size()} ranks, got {len(tensors)}"
            )
    _check_written(output_tensor_list, "all_to_all")
    receives = [tensor.numel() for tensor in output_tensor_list]
    sends = [tensor.numel() for tensor in input_tensor_list]
    engine, where = pg.engine_of(output_tensor_list[0].device)
    array = joined(input_tensor_list, where)
    into = _room(sum(receives), output_tensor_list[0], where)
    done = engine.all_to_all(into, array, receives, sends)
    call = pg.call("all_to_all", input_tensor_list[0])
    finish = partial(_put_parts, output_tensor_list, into, where)
    return _begun(call, pg, done, output_tensor_list, finish, async_op)


def barrier(
    group: Any = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Wait until all ranks have called this; with NCCL also for the work queued on their GPUs.

    Parameters
    ----------
    group : ProcessGroup, optional
        By default the default group.
    async_op : bool
        Return immediately; all ranks have called it after `Work.wait`.
    device_ids : list of int, optional
        The GPU for NCCL; by default the current one.
    timeout : timedelta, optional
        By default that of the group.
    """
    pg = groups.resolved(group, "barrier")
    if pg is None:
        return None
    done = _barrier(pg, device_ids)
    return _begun(pg.call("barrier"), pg, done, async_op=async_op, timeout=timeout)


def _barrier(group: ProcessGroup, device_ids: Any) -> Done:
    if group.backend != groups.Backend.NCCL or group.engine.name == "one":
        return group.engine.barrier()
    where = backend(device("cuda"))
    index = device_ids[0] if device_ids else where.current_index()
    engine, _ = group.engine_of(device("cuda", index))
    with on_gpu(where.xp.cuda, index):
        return engine.barrier()


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all ranks have called this, and raise on rank 0 naming who has not.

    Parameters
    ----------
    group : ProcessGroup, optional
    timeout : timedelta, optional
        The group's by default.
    wait_all_ranks : bool
        Name all ranks that are missing, not only the first.

    Raises
    ------
    RuntimeError
        On rank 0, after ``timeout``. The other ranks wait for it as long, and time out.
    """
    pg = groups.resolved(group, "monitored_barrier")
    if pg is None:
        return
    limit = timeout or pg.timeout
    engine, token = pg.engine, np.zeros(1, np.uint8)
    call = Call("monitored_barrier", ranks=pg.ranks)
    if engine.rank:
        engine.send(token, 0, _MONITORED)
        Work(call, [engine.receive(token, 0, _MONITORED)], limit).wait()
        return
    waiting = {
        rank: engine.receive(np.zeros(1, np.uint8), rank, _MONITORED)
        for rank in range(1, engine.size)
    }

    def arrived() -> bool:
        for rank in [rank for rank, done in waiting.items() if done.test()]:
            del waiting[rank]
        return not waiting

    try:
        Work(call, [_Asked(arrived)], limit).wait()
    except DistBackendError:
        for done in waiting.values():
            done.withdraw()  # else the next barrier's messages would come to these
        missing = [pg.ranks[rank] for rank in waiting]
        named = ", ".join(map(str, missing if wait_all_ranks else missing[:1]))
        milliseconds = int(limit.total_seconds() * 1000)
        raise RuntimeError(
            f"Rank {named} failed to pass monitoredBarrier in {milliseconds} ms"
        ) from None
    for rank in range(1, engine.size):
        engine.send(token, rank, _MONITORED)


_MONITORED = (1 << 20) + 1  # the tag of our own messages


class _Asked(Done):
    """What is done once a function says so."""

    def __init__(self, says: Callable[[], bool]) -> None:
        self._says = says

    def test(self) -> bool:
        return self._says()


# --- messages -----------------------------------------------------------------------------------


def _message(what: str, tensor: Tensor, way: str, ranks: list[int]) -> Call:
    """A message as errors name it; it goes on while any of the ranks can take part."""
    peer = f"rank {ranks[0]}" if len(ranks) == 1 else "any rank"
    kind, shape = tensor.dtype.name, tuple(tensor.shape)
    return Call(f"{what} {way} {peer}", kind, shape, ranks=ranks, needs="any")


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send a tensor to a rank. Do not write to it before `Work.wait` returns.

    Parameters
    ----------
    tensor : Tensor, any shape
    dst : int, optional
        A rank of the default group.
    group : ProcessGroup, optional
        By default the default group.
    tag : int
        Messages are matched by sender and tag.
    group_dst : int, optional
        A rank of ``group``, instead of ``dst``.

    Returns
    -------
    Work or None
        None if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For anything but a dense tensor.
    ValueError
        For this process's own rank, and a rank that is not in the group.
    """
    pg = groups.resolved(group, "isend")
    _check_tensor(tensor, "tensor")
    if pg is None:
        return None
    peer = other_rank(pg, group_rank_of(pg, dst, group_dst), "destination")
    call = _message("send", tensor, "to", [pg.ranks[peer]])
    engine, where = pg.engine_of(tensor.device)
    return _begun(call, pg, engine.send(_read(tensor, where), peer, tag), [tensor], None, True)


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor from a rank. It holds the message after `Work.wait`.

    Parameters
    ----------
    tensor : Tensor, any shape
        Written; with the dtype and number of elements of the message.
    src : int, optional
        A rank of the default group; by default any rank.
    group : ProcessGroup, optional
        By default the default group.
    tag : int
        Messages are matched by sender and tag.
    group_src : int, optional
        A rank of ``group``, instead of ``src``.

    Returns
    -------
    Work or None
        None if this process is not in ``group``.

    Raises
    ------
    TypeError, NotImplementedError
        For anything but a dense tensor.
    ValueError
        For this process's own rank, and a rank that is not in the group.
    """
    pg = groups.resolved(group, "irecv")
    _check_tensor(tensor, "tensor")
    if pg is None:
        return None
    peer = None
    if src is not None or group_src is not None:
        peer = other_rank(pg, group_rank_of(pg, src, group_src), "source")
    _check_written([tensor], "recv")
    engine, where = pg.engine_of(tensor.device)
    array, finish = _written(tensor, "recv", where, False)
    done = engine.receive(array, peer, tag)
    others = [rank for rank in pg.ranks if rank != pg.ranks[pg.rank()]]
    call = _message("recv", tensor, "from", others if peer is None else [pg.ranks[peer]])
    return _begun(call, pg, done, [tensor], finish, True)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor of any shape to a rank, and wait until it may be written again.

    See `isend`.
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor of any shape, in place, and wait for it.

    See `irecv`.

    Returns
    -------
    int
        The rank of the sender in the default group; -1 if this process is not in ``group``.
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return groups.get_global_rank(group, work.source_rank())


class P2POp:
    """A message for `batch_isend_irecv`.

    Parameters
    ----------
    op : {isend, irecv}
    tensor : Tensor, any shape
    peer : int, optional
        A rank of the default group.
    group : ProcessGroup, optional
    tag : int
    group_peer : int, optional
        A rank of the group, instead of ``peer``.

    Raises
    ------
    TypeError, NotImplementedError, ValueError
        For another ``op``, a tensor that is not dense, and a rank that is not in the group.
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        _check_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = groups.resolved(group)
        if self.group is None:
            raise ValueError("P2POp: this process does not belong to the group")
        self.group_peer = group_rank_of(self.group, peer, group_peer)
        self.peer = self.group.ranks[self.group_peer]


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several messages.

    Parameters
    ----------
    p2p_op_list : list of P2POp
        All of one group.

    Returns
    -------
    list of Work
        One for each message; with NCCL one for all.

    Raises
    ------
    ValueError
        For anything but a list of `P2POp` of one group.
    """
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type "
            "``torch.distributed.P2POp``."
        )
    if any(p.group is not p2p_op_list[0].group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    if p2p_op_list:
        group: ProcessGroup = p2p_op_list[0].group  # type: ignore[assignment]
        engine, where = group.engine_of(p2p_op_list[0].tensor.device)
        if isinstance(engine, NCCLEngine):
            return [_exchange(group, engine, where, p2p_op_list)]
    begun = [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]
    return [work for work in begun if work is not None]


def _exchange(
    group: ProcessGroup, engine: NCCLEngine, where: device, messages: list[P2POp]
) -> Work:
    """Messages that NCCL sends and receives side by side: one work."""
    sends, receives, finishes = [], [], []
    for p in messages:
        other_rank(group, p.group_peer, "destination" if p.op is isend else "source")
        if p.op is isend:
            sends.append((_read(p.tensor, where), p.group_peer))
            continue
        _check_written([p.tensor], "recv")
        array, finish = _written(p.tensor, "recv", where, False)
        receives.append((array, p.group_peer))
        finishes += [finish] if finish is not None else []

    def finish_all() -> None:
        for finish in finishes:
            finish()

    first, ranks = messages[0], [p.peer for p in messages]
    call = Call("batch_isend_irecv", first.tensor.dtype.name, (), ranks=ranks, needs="any")
    tensors = [p.tensor for p in messages]
    work = _begun(call, group, engine.exchange(sends, receives), tensors, finish_all, True)
    assert work is not None
    return work
