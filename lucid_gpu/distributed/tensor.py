"""Tensors of which each rank holds some rows: `DTensor`, in its simplest form."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid_gpu.distributed import groups
from lucid_gpu.distributed.collectives import all_gather_into_tensor, all_reduce, scatter
from lucid_gpu.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.overrides import disabled
from lucid_gpu.tensor import Tensor, from_array

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
    """

    mesh: DeviceMesh
    shape: tuple[int, ...]

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


_grad: Any = Tensor.grad


class DTensor(Tensor):
    """The rows of a tensor that this rank holds.

    It is an ordinary tensor of these rows: ``shape`` is theirs, and operations compute with them
    alone and give plain tensors. `full_tensor` is the whole.

    Attributes
    ----------
    sharding : Sharding
    """

    __torch_function__ = disabled  # type: ignore[assignment]
    sharding: Sharding

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks."""
        return self.sharding.mesh

    @property
    def placements(self) -> tuple[Any, ...]:
        """How the tensor lies on the mesh, one entry for each of its dimensions."""
        return self.sharding.placements

    def to_local(self) -> Tensor:
        """This rank's rows as a plain tensor that shares their memory."""
        return super().detach()

    def full_tensor(self) -> Tensor:
        """The whole tensor, apart from the graph; all ranks of the mesh call it."""
        return Gathering([self.to_local()], [self.sharding]).wait()[0]

    def rows_as(self, tensor: Tensor) -> Tensor:
        """A tensor of this one's shape, such as an optimizer's state, as rows like these."""
        return as_rows(tensor.detach(), self.sharding) if tensor.shape == self.shape else tensor

    def detach(self) -> DTensor:
        """The same rows and memory, apart from the graph."""
        return as_rows(super().detach(), self.sharding)

    def clone(self, **options: Any) -> DTensor:
        """A copy of the rows."""
        return as_rows(super().clone(**options), self.sharding)

    def cpu(self) -> DTensor:
        """The rows in memory of the host."""
        return as_rows(super().cpu(), self.sharding)

    def to(self, *args: Any, **options: Any) -> DTensor:
        """The rows on a device, or of a dtype."""
        moved = super().to(*args, **options)
        return self if moved is self else as_rows(moved, self.sharding)

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the rows, a `DTensor`."""
        gradient = _grad.__get__(self)
        if type(gradient) is Tensor and gradient.shape == self.shape:
            return as_rows(gradient, self.sharding)
        return gradient

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        _grad.__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        _grad.__delete__(self)

    def __repr__(self) -> str:
        return (
            f"DTensor(local_tensor={self.to_local()!r}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )


def as_rows(tensor: Tensor, sharding: Sharding) -> Any:
    """A tensor that this rank computed, from now on known as its rows of a larger one."""
    tensor.__class__ = DTensor
    tensor.sharding = sharding  # type: ignore[attr-defined]
    return tensor


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
