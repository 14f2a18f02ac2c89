"""PyTorch's choice of kernels for attention: ours by three of their names, and cuDNN's."""

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

    The kernel of this package answers to ``MATH`` and ``FLASH_ATTENTION``, on a GPU also to
    ``EFFICIENT_ATTENTION``. ``CUDNN_ATTENTION`` is cuDNN's, on a GPU, for float16 and bfloat16 of
    shape (batch, heads, rows, columns), without a mask or with ``is_causal``. It is used where
    nvidia-cudnn-frontend is installed, unless a program allows others only or calls
    `use_deterministic_algorithms`. It has not run on a GPU yet. Where what is asked for cannot be
    used, and nothing else is among the ``backends``, attention raises PyTorch's RuntimeError, which
    says why.

    Parameters
    ----------
    backends : SDPBackend or list of SDPBackend
    set_priority : bool
        Take the first of the ``backends`` that can be used; else cuDNN's is taken before ours.

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
    names = list(dict.fromkeys(backends if isinstance(backends, list) else [backends]))
    if not set_priority:
        names.sort(key=lambda name: name != kernels.CUDNN)
    before = kernels.allow(tuple(names))
    try:
        yield {}
    finally:
        kernels.allow(before)
