"""`torch.types`: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, TypeAlias

from lucid_gpu import Generator as Generator
from lucid_gpu import Size, Tensor, UntypedStorage
from lucid_gpu import device as _device
from lucid_gpu import dtype as _dtype
from lucid_gpu import layout as _layout

from ._sym import SymBool, SymFloat, SymInt

__all__ = [
    "Device",
    "FileLike",
    "Number",
    "Storage",
    "SymBool",
    "SymFloat",
    "SymInt",
    "_device",
    "_dtype",
    "_layout",
]

_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_size: TypeAlias = Size | list[int] | tuple[int, ...]
Number: TypeAlias = int | float | bool
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: TypeAlias = UntypedStorage
_symsize: TypeAlias = _size
_dispatchkey: TypeAlias = str
PySymType: TypeAlias = int | float | bool
IntLikeType, FloatLikeType, BoolLikeType = builtins.int, builtins.float, builtins.bool
