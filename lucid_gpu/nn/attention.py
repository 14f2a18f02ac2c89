"""PyTorch's choice of kernels for attention: there is one here, by all their names."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator

from lucid_gpu.ops import attention as kernels

__all__ = ["SDPBackend", "sdpa_kernel"]

__path__ = [  # `nn.attention.flex_attention`
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "torch_names", "nn", "attention")
]


class SDPBackend(enum.IntEnum):
    """PyTorch's names of kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[dict[str, object]]:
    """Allow `scaled_dot_product_attention` some kernels only.

    There is one kernel, by tiles, and it answers to each name that PyTorch's device knows: on a CPU
    ``MATH`` and ``FLASH_ATTENTION``, on a GPU ``EFFICIENT_ATTENTION`` and ``CUDNN_ATTENTION``.
    Where none of these is among the ``backends``, attention raises PyTorch's RuntimeError.

    Parameters
    ----------
    backends : SDPBackend or list of SDPBackend
    set_priority : bool
        Taken and without effect.

    Raises
    ------
    AssertionError
        For anything else.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    before = kernels.allow(frozenset(backends if isinstance(backends, list) else [backends]))
    try:
        yield {}
    finally:
        kernels.allow(before)
