"""Collectives of Python objects, by pickle: what the ranks of a group send is trusted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.distributed import groups
from lucid_gpu.distributed.collectives import group_rank_of, other_rank
from lucid_gpu.distributed.engines import Done
from lucid_gpu.distributed.groups import ProcessGroup
from lucid_gpu.distributed.watch import Call
from lucid_gpu.distributed.work import Work

_TAG = (1 << 20) + 2


def _wait(what: str, group: ProcessGroup, done: Done) -> None:
    group.progress()
    engine, call = group.engine, group.call(what)
    Work(call, [done], group.timeout, watch=engine.watch, agreement=engine.agree(call)).wait()


def _sent(what: str, group: ProcessGroup, done: Done, ranks: list[int]) -> None:
    """Wait for a message from or to one of some ranks."""
    Work(
        Call(what, ranks=ranks, needs="any"), [done], group.timeout, watch=group.engine.watch
    ).wait()


def _pickled(value: Any) -> Any:
    return np.frombuffer(bytearray(pickle.dumps(value)), np.uint8)


def _read(array: Any) -> Any:
    return pickle.loads(array.tobytes())


def _padded(array: Any, size: int) -> Any:
    room = np.zeros(size, np.uint8)
    room[: array.size] = array
    return room


def _sizes(what: str, group: ProcessGroup, array: Any) -> list[int]:
    """How many bytes each rank has."""
    sizes = np.zeros(group.size(), np.int64)
    _wait(what, group, group.engine.all_gather(sizes, np.array([array.size], np.int64)))
    return [int(size) for size in sizes]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Write the objects of all ranks to a list with one item for each rank.

    The objects are pickled, and unpickling runs code: use it only with ranks that you trust.
    """
    pg = groups.resolved(group, "all_gather_object")
    if pg is None:
        return
    mine = _pickled(obj)
    sizes = _sizes("all_gather_object", pg, mine)
    longest = max(sizes)
    whole = np.zeros(longest * pg.size(), np.uint8)
    done = pg.engine.all_gather(whole, _padded(mine, longest))
    _wait("all_gather_object", pg, done)
    for i, size in enumerate(sizes):
        object_list[i] = _read(whole[i * longest : i * longest + size])


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Write the objects of all ranks to a list on rank ``dst``, by default 0.

    The other ranks pass no list. The objects are pickled, and unpickling runs code: use it only
    with ranks that you trust.

    Raises
    ------
    ValueError
        For a list on another rank, or none on ``dst``.
    """
    pg = groups.resolved(group, "gather_object")
    if pg is None:
        return
    root = group_rank_of(pg, dst, group_dst, 0)
    at_root = root == pg.rank()
    if at_root and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if object_gather_list and not at_root:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    mine = _pickled(obj)
    sizes = _sizes("gather_object", pg, mine)
    longest = max(sizes)
    whole = np.zeros(longest * pg.size(), np.uint8) if at_root else None
    _wait("gather_object", pg, pg.engine.gather(whole, _padded(mine, longest), root))
    if whole is not None and object_gather_list is not None:
        for i, size in enumerate(sizes):
            object_gather_list[i] = _read(whole[i * longest : i * longest + size])


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Copy the items of a list on rank ``src``, by default 0, to the lists of all ranks.

    The objects are pickled, and unpickling runs code: use it only with ranks that you trust.
    ``device`` is ignored.

    Raises
    ------
    ValueError
        For lists of different lengths.
    """
    pg = groups.resolved(group, "broadcast_object_list")
    if pg is None:
        return
    root = group_rank_of(pg, src, group_src, 0)
    at_root = root == pg.rank()
    array = _pickled(list(object_list)) if at_root else np.zeros(0, np.uint8)
    size = np.array([array.size], np.int64)
    _wait("broadcast_object_list", pg, pg.engine.broadcast(size, root))
    if not at_root:
        array = np.zeros(int(size[0]), np.uint8)
    _wait("broadcast_object_list", pg, pg.engine.broadcast(array, root))
    if not at_root:
        _fill(object_list, _read(array), "broadcast_object_list")


def _fill(into: list[Any], values: Sequence[Any], name: str) -> None:
    if len(into) != len(values):
        raise ValueError(f"{name}: the list has {len(into)} items, the sender's {len(values)}")
    into[:] = values


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Send each rank one object of a list on rank ``src``, by default 0.

    It becomes item 0 of ``scatter_object_output_list``.
    The objects are pickled, and unpickling runs code: use it only with ranks that you trust.

    Raises
    ------
    ValueError
        For an empty output list, and unless the list on ``src`` has one item for each rank.
    """
    pg = groups.resolved(group, "scatter_object_list")
    if pg is None:
        return
    root = group_rank_of(pg, src, group_src, 0)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    whole, sizes = None, np.zeros(pg.size(), np.int64)
    if root == pg.rank():
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        if len(scatter_object_input_list) != pg.size():
            raise ValueError(
                f"scatter_object_list: needs an object for each of {pg.size()} ranks, got "
                f"{len(scatter_object_input_list)}"
            )
        arrays = [_pickled(value) for value in scatter_object_input_list]
        sizes[:] = [array.size for array in arrays]
        whole = np.concatenate([_padded(array, int(sizes.max())) for array in arrays])
    _wait("scatter_object_list", pg, pg.engine.broadcast(sizes, root))
    mine = np.zeros(int(sizes.max()), np.uint8)
    _wait("scatter_object_list", pg, pg.engine.scatter(mine, whole, root))
    scatter_object_output_list[0] = _read(mine[: sizes[pg.rank()]])


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the items of a list to rank ``dst``; ``device`` and ``use_batch`` are ignored."""
    pg = groups.resolved(group, "send_object_list")
    if pg is None:
        return
    peer = other_rank(pg, group_rank_of(pg, dst, group_dst), "destination")
    array = _pickled(list(object_list))
    size = np.array([array.size], np.int64)
    for part in (size, array):
        done = pg.engine.send(part, peer, _TAG)
        _sent("send_object_list", pg, done, [pg.ranks[peer]])


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive the items of a list from rank ``src``, by default from any rank.

    The objects are pickled, and unpickling runs code: use it only with ranks that you trust.

    Returns
    -------
    int
        The rank of the sender.

    Raises
    ------
    ValueError
        For another number of items than were sent.
    """
    pg = groups.resolved(group, "recv_object_list")
    if pg is None:
        return -1
    peer = None
    if src is not None or group_src is not None:
        peer = other_rank(pg, group_rank_of(pg, src, group_src), "source")
    size = np.zeros(1, np.int64)
    done = pg.engine.receive(size, peer, _TAG)
    others = [rank for i, rank in enumerate(pg.ranks) if i != pg.rank()]
    _sent("recv_object_list", pg, done, others if peer is None else [pg.ranks[peer]])
    array = np.zeros(int(size[0]), np.uint8)
    rest = pg.engine.receive(array, done.source, _TAG)
    _sent("recv_object_list", pg, rest, [pg.ranks[done.source]])
    _fill(object_list, _read(array), "recv_object_list")
    return groups.get_global_rank(group, done.source)
