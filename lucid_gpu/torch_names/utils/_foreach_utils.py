"""`torch.utils._foreach_utils`: lists of tensors by device and type."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu import Tensor, device, dtype

__all__ = [
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_group_tensors_by_device_and_dtype",
]

_Lists = list[list[Tensor | None]]
_foreach_supported_types = [Tensor]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[device, dtype], tuple[_Lists, list[int]]]:
    """Several lists side by side, cut into groups of what the first list holds."""
    groups: dict[tuple[device, dtype], tuple[_Lists, list[int]]] = {}
    for i, row in enumerate(zip(*tensorlistlist, strict=True)):
        if row[0] is None:
            raise RuntimeError("the first list must hold tensors only")
        lists, indices = groups.setdefault(
            (row[0].device, row[0].dtype), ([[] for _ in tensorlistlist], [])
        )
        for group, t in zip(lists, row):
            group.append(t)
        if with_indices:
            indices.append(i)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    return ["cpu", "cuda"]


def _device_has_foreach_support(device: device) -> bool:
    return device.type in ("cuda", "cpu")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: device) -> bool:
    """Whether functions of lists take these tensors as they are: no subclasses."""
    return _device_has_foreach_support(device) and all(
        t is None or type(t) in _foreach_supported_types for t in tensors
    )
