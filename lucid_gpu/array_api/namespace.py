"""``Tensor.__array_namespace__()``, by which programs find the functions of the standard."""

from __future__ import annotations

from typing import Any

from lucid_gpu import array_api
from lucid_gpu.tensor import Tensor

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> Any:
    """The module of the array API standard's functions, `lucid_gpu.array_api`.

    Raises
    ------
    ValueError
        For a version of the standard later than 2024.12.
    """
    if api_version not in (None, *VERSIONS):
        raise ValueError(
            f"api_version must be one of {', '.join(VERSIONS)}, or None, got {api_version!r}"
        )
    return array_api


METHODS = (__array_namespace__,)
