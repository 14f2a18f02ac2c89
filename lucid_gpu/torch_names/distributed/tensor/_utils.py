"""`torch.distributed.tensor._utils`: which part of a tensor a rank holds."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu.distributed.device_mesh import DeviceMesh
from lucid_gpu.distributed.tensor import Placement, Shard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    skip_offset: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's part of a tensor, and where it begins.

    Parameters
    ----------
    global_shape : sequence of int
    mesh : DeviceMesh
    placements : sequence of Placement
        One for each dimension of the mesh.
    skip_offset : bool
        Return no beginning, but an empty tuple.
    """
    shape, start = list(global_shape), [0] * len(global_shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # a rank outside the mesh holds nothing
        return (0,), ()
    for at, placement in enumerate(placements):
        if isinstance(placement, Shard):
            dim = placement.dim
            count, offset = placement.local_shard_size_and_offset(
                shape[dim], mesh.size(at), coordinate[at]
            )
            shape[dim], start[dim] = count, start[dim] + offset
    return tuple(shape), () if skip_offset else tuple(start)
