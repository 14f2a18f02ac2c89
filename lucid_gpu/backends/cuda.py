"""Settings of the GPU's libraries.

Examples
--------
>>> import lucid_gpu
>>> lucid_gpu.backends.cuda.matmul.allow_tf32 = True
>>> lucid_gpu.get_float32_matmul_precision()
'high'
>>> lucid_gpu.set_float32_matmul_precision("highest")
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from lucid_gpu.devices import cublaslt
from lucid_gpu.devices.precision import matmul as matmul
from lucid_gpu.ops import attention
from lucid_gpu.tensor import Tensor

__all__ = [
    "SDPAParams",
    "can_use_cudnn_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "sdp_kernel",
]


def is_built() -> bool:
    """Whether this package can use NVIDIA GPUs: it can, where CuPy and a driver are installed."""
    return True


class _BlasBackend(Enum):
    """What `preferred_blas_library` gives, under PyTorch's names."""

    Default, Cublas, Cublaslt, Ck = range(4)


_BLAS = {
    "default": _BlasBackend.Default,
    "cublas": _BlasBackend.Cublas,
    "hipblas": _BlasBackend.Cublas,
    "cublaslt": _BlasBackend.Cublaslt,
    "hipblaslt": _BlasBackend.Cublaslt,
    "ck": _BlasBackend.Ck,
}


def preferred_blas_library(backend: None | str | _BlasBackend = None) -> _BlasBackend:
    """Which library multiplies for linear layers with a bias on a GPU; by default cuBLAS.

    cuBLASLt adds the bias before the product is stored, and sums the bias's gradient while it
    computes the weight's. What it does not take, and every other product, is cuBLAS's.
    ``TORCH_BLAS_PREFER_CUBLASLT=1`` prefers it from the start.

    Parameters
    ----------
    backend : {"default", "cublas", "cublaslt"}, optional
        Or what this function gave before.

    Raises
    ------
    RuntimeError
        For another value, and for AMD's ``"ck"``.
    """
    if isinstance(backend, str):
        if backend not in _BLAS:
            raise RuntimeError(f"Unknown input value. Choose from: {', '.join(_BLAS)}.")
        backend = _BLAS[backend]
    if backend is not None:
        if not isinstance(backend, _BlasBackend):
            raise RuntimeError("Unknown input value type.")
        if backend is _BlasBackend.Ck:
            raise RuntimeError('preferred_blas_library("ck"): that library is for AMD GPUs')
        cublaslt.prefer(backend is _BlasBackend.Cublaslt)
    return _BlasBackend.Cublaslt if cublaslt.preferred else _BlasBackend.Cublas


class SDPAParams(NamedTuple):
    """The arguments of a `scaled_dot_product_attention`, for `can_use_cudnn_attention`."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether cuDNN's attention is enabled and takes these arguments; ``debug`` warns why not.

    cuDNN itself is not asked, which may still have no engine for a shape.
    """
    reason = attention.why_not_cudnn(*params)
    if not cudnn_sdp_enabled():
        reason = "it is disabled: torch.backends.cuda.enable_cudnn_sdp(True)"
    if reason is not None and debug:
        warnings.warn(f"cuDNN attention cannot be used: {reason}", stacklevel=2)
    return reason is None


def enable_cudnn_sdp(enabled: bool) -> None:
    """Let attention use cuDNN's kernel where it can, before ours; on by default."""
    _enable(attention.CUDNN, enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether `enable_cudnn_sdp` or `nn.attention.sdpa_kernel` lets attention use cuDNN's."""
    return attention.CUDNN in attention.allowed()


def enable_flash_sdp(enabled: bool) -> None:
    """Let attention use our kernel by PyTorch's name ``FLASH_ATTENTION``; on by default."""
    _enable(1, enabled)


def flash_sdp_enabled() -> bool:
    """Whether attention may use our kernel by the name ``FLASH_ATTENTION``."""
    return 1 in attention.allowed()


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Let attention use our kernel by PyTorch's name ``EFFICIENT_ATTENTION``; on by default."""
    _enable(2, enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether attention may use our kernel by the name ``EFFICIENT_ATTENTION``."""
    return 2 in attention.allowed()


def enable_math_sdp(enabled: bool) -> None:
    """Let attention use our kernel by PyTorch's name ``MATH``; on by default."""
    _enable(0, enabled)


def math_sdp_enabled() -> bool:
    """Whether attention may use our kernel by the name ``MATH``."""
    return 0 in attention.allowed()


def _enable(kernel: int, enabled: bool) -> None:
    rest = [number for number in attention.allowed() if number != kernel]
    if enabled:
        rest.insert(0 if kernel == attention.CUDNN else len(rest), kernel)
    attention.allow(tuple(rest))


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[str, object]]:
    """`nn.attention.sdpa_kernel` under its first name; cuDNN's kernel is taken last."""
    flags = (enable_math, enable_flash, enable_mem_efficient, enable_cudnn)
    order = (*attention.OURS, attention.CUDNN)
    before = attention.allow(tuple(kernel for kernel in order if flags[kernel]))
    try:
        yield {}
    finally:
        attention.allow(before)
