"""`torch._tensor`: where `Tensor` lives in PyTorch."""

from __future__ import annotations

from typing import Any

from lucid_gpu.tensor import Tensor

__all__ = ["Tensor"]


def _convert(ret: Any, cls: type[Tensor]) -> Any:
    """A result, tensors in lists and tuples too, of a subclass, as ``__torch_function__`` gives."""
    if cls is Tensor:
        return ret
    if isinstance(ret, Tensor):
        return ret if isinstance(ret, cls) else ret.as_subclass(cls)
    if isinstance(ret, (tuple, list)):
        return type(ret)([_convert(part, cls) for part in ret])
    return ret
