"""Whether ops must give the same bits for the same input: they do.

Sums have a fixed order on every device and no kernel adds by atomics. All these settings change is
that cuDNN is held to it where a program has let it go (``backends.cudnn.deterministic = False``).
"""

from __future__ import annotations

import builtins

from lucid_gpu.devices.cudnn import settings

_MODES = ("default", "warn", "error")
_mode = 0


def use_deterministic_algorithms(mode: builtins.bool, *, warn_only: builtins.bool = False) -> None:
    """Ask for ops that give the same bits for the same input, which they do anyway.

    TypeError for a ``mode`` that is not a bool.
    """
    if not isinstance(mode, builtins.bool):
        raise TypeError(
            "_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not "
            f"{type(mode).__name__}"
        )
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


def are_deterministic_algorithms_enabled() -> builtins.bool:
    """The `mode` of the last `use_deterministic_algorithms`."""
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> builtins.bool:
    """Whether ``warn_only`` was asked for."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a word: 0 default, 1 warn, 2 error.

    RuntimeError for other numbers and words.
    """
    global _mode
    if debug_mode in _MODES:
        debug_mode = _MODES.index(str(debug_mode))
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, 2 or {', '.join(_MODES)}, but got "
            f"{debug_mode}"
        )
    _mode = int(debug_mode)
    settings.required = _mode > 0


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return _mode
