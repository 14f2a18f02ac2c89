"""Ranks laid out in several dimensions, with a group along each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid_gpu.distributed import groups
from lucid_gpu.ops.creation import tensor
from lucid_gpu.tensor import Tensor

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """An array of ranks; all ranks of the default group must make it, in the same order.

    Parameters
    ----------
    device_type : str
        ``"cpu"`` or ``"cuda"``.
    mesh : array_like of int
        Ranks of the default group.
    mesh_dim_names : tuple of str, optional

    Attributes
    ----------
    device_type : str
    mesh : Tensor of int64
    mesh_dim_names : tuple of str or None

    Raises
    ------
    RuntimeError
        For ranks that occur twice, and another number of names than of dimensions.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> None:
        ranks = np.asarray(mesh.tolist() if isinstance(mesh, Tensor) else mesh, np.int64)
        if ranks.size != len(set(ranks.reshape(-1).tolist())):
            raise RuntimeError("DeviceMesh cannot have duplicate ranks")
        if mesh_dim_names is not None and len(mesh_dim_names) != ranks.ndim:
            raise RuntimeError(
                "mesh_dim_names must be the same length as mesh_shape: got "
                f"{len(mesh_dim_names)} names for {ranks.ndim} dimensions"
            )
        self._set(device_type, ranks, mesh_dim_names)
        self._groups = [self._group_along(dim) for dim in range(ranks.ndim)]

    def _set(self, device_type: str, ranks: Any, names: tuple[str, ...] | None) -> None:
        self.device_type, self._ranks = device_type, ranks
        self.mesh: Tensor = tensor(ranks)
        self.mesh_dim_names = None if names is None else tuple(names)

    def _group_along(self, dim: int) -> Any:
        """This rank's group along a dimension; every rank makes all of them.

        The group of all ranks is the default group.
        """
        rows = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim])
        own_group = None
        for row in rows.tolist():
            if row == [*range(groups.get_world_size())]:
                return groups.group.WORLD
            made = groups.new_group(row, sort_ranks=False)
            if made != groups.GroupMember.NON_GROUP_MEMBER:
                own_group = made
        return own_group

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return int(self._ranks.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks there are along each dimension."""
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, along a dimension or in all."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def _dim(self, dim: int | str) -> int:
        if isinstance(dim, str):
            if dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Invalid mesh_dim_name {dim!r}: the mesh has {self.mesh_dim_names}")
            assert self.mesh_dim_names is not None
            return self.mesh_dim_names.index(dim)
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(f"mesh_dim {dim} is out of range: the mesh has {self.ndim} dimensions")
        return dim % self.ndim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this rank along a dimension, which a mesh of one dimension does not need.

        Raises
        ------
        RuntimeError, KeyError, IndexError
            For a missing dimension, an unknown name, and a number out of range.
        """
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                    "needs to be specified when device_mesh.ndim > 1."
                )
            mesh_dim = 0
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """This rank's groups along all dimensions."""
        return list(self._groups)

    def get_rank(self) -> int:
        """This process's rank in the default group."""
        return groups.get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this rank is in the mesh; None where it is not."""
        coordinates = np.argwhere(self._ranks == self.get_rank())
        return [int(i) for i in coordinates[0]] if len(coordinates) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's coordinate along a dimension."""
        if mesh_dim is None and self.ndim > 1:
            self.get_group()  # raises
        coordinate = self.get_coordinate()
        if coordinate is None:
            return -1
        return coordinate[self._dim(mesh_dim or 0)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along named dimensions that this rank is in."""
        dims = [self._dim(name) for name in ([names] if isinstance(names, str) else names)]
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError("this rank is not in the mesh")
        ranks = self._ranks[
            tuple([slice(None) if i in dims else p for i, p in enumerate(coordinate)])
        ]
        assert self.mesh_dim_names is not None
        part: DeviceMesh = object.__new__(DeviceMesh)
        part._set(
            self.device_type,
            ranks.transpose([sorted(dims).index(dim) for dim in dims]),
            tuple([self.mesh_dim_names[dim] for dim in dims]),
        )
        part._groups = [self._groups[dim] for dim in dims]
        return part

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
) -> DeviceMesh:
    """A mesh of all ranks, in row-major order; `init_process_group` is called where needed.

    Parameters
    ----------
    device_type : str
    mesh_shape : tuple of int
    mesh_dim_names : tuple of str, optional

    Raises
    ------
    RuntimeError
        If the shape has not as many places as there are ranks, or names are missing or twice.
    """
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
        raise RuntimeError(f"Each mesh_dim_name must be unique, got {mesh_dim_names}")
    if not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. "
            f"Write {device_type.split(':')[0]!r}"
        )
    if not groups.is_initialized():
        groups.init_process_group()
    size = groups.get_world_size()
    count = math.prod(mesh_shape)
    if count > size:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {size}, but found {count} ranks!"
        )
    if count < size:
        raise RuntimeError(f"mesh_shape {tuple(mesh_shape)} has {count} places for {size} ranks")
    ranks = np.arange(size).reshape(mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
