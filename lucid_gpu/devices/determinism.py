"""Whether ops must give the same bits for the same input: they do.

Sums have a fixed order on every device and no kernel adds by atomics. All these settings change is
that cuDNN is held to it where a program has let it go (``backends.cudnn.deterministic = False``).
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from lucid_gpu.devices.cudnn import settings
from lucid_gpu.dtypes import dtype, iinfo

_MODES = ("default", "warn", "error")
_enabled = _warn_only = False
_fills = True


def use_deterministic_algorithms(mode: builtins.bool, *, warn_only: builtins.bool = False) -> None:
    """Ask for ops that give the same bits for the same input, which they do anyway.

    TypeError for a ``mode`` that is not a bool.
    """
    if not isinstance(mode, builtins.bool):
        raise TypeError(
            "_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not "
            f"{type(mode).__name__}"
        )
    global _enabled, _warn_only
    _enabled, _warn_only = mode, warn_only
    settings.required = mode


def are_deterministic_algorithms_enabled() -> builtins.bool:
    """The `mode` of the last `use_deterministic_algorithms`."""
    return _enabled


def is_deterministic_algorithms_warn_only_enabled() -> builtins.bool:
    """Whether ``warn_only`` was asked for."""
    return _warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a word: 0 default, 1 warn, 2 error.

    RuntimeError for other numbers and words.
    """
    mode = _MODES.index(str(debug_mode)) if debug_mode in _MODES else debug_mode
    if mode not in (0, 1, 2):
        words = ", ".join([f"`{word}`" for word in _MODES])
        expected = f"one of {words}" if isinstance(mode, str) else "0, 1, or 2"
        raise RuntimeError(f"invalid value of debug_mode, expected {expected}, but got {mode}")
    use_deterministic_algorithms(mode != 0, warn_only=mode == 1)


def fills() -> builtins.bool:
    """Whether `empty` is filled under `use_deterministic_algorithms`."""
    return _fills


def set_fill(mode: builtins.bool) -> None:
    """Set whether it is; RuntimeError for anything but a bool."""
    global _fills
    if not isinstance(mode, builtins.bool):
        raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
    _fills = mode


def unwritten(d: dtype) -> Any:
    """What `empty` is filled with: NaN, or the largest number; None where nobody asked."""
    if not (_enabled and _fills):
        return None
    if d.category > 1:
        return math.nan
    return True if d.category == 0 else iinfo(d).max


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return (1 if _warn_only else 2) if _enabled else 0
