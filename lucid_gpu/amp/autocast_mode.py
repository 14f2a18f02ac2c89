"""autocast, and custom functions under it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from lucid_gpu.amp.state import (
    KINDS,
    cast,
    checked,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    state,
)
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.dtypes import bfloat16, dtype, float16
from lucid_gpu.tape.modes import state as modes

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
__all__ += ["set_autocast_enabled"]


def is_autocast_available(device_type: str) -> bool:
    """Whether ops on such a device can be cast."""
    return device_type in KINDS


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Cast ops on such a device from now on, or no longer; `autocast` does it for a block."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    kind = checked(str(device_type))
    if enabled != state.enabled[kind]:
        from lucid_gpu.amp.ops import watching

        state.enabled[kind] = enabled
        watching.__enter__() if enabled else watching.__exit__()


class autocast:
    """Matrix products and convolutions in 16 bits, and what loses too much by that in float32.

    A context manager and a decorator. Which ops are cast depends on the kind of device, as in
    PyTorch's lists. Values of float64 and results written with ``out=`` are left alone.

    Parameters
    ----------
    device_type : {"cpu", "cuda"}
    dtype : dtype, optional
        bfloat16 or float16; by default bfloat16 on the CPU and float16 on a GPU.
    enabled : bool
    cache_enabled : bool, optional
        Cast each parameter once for the whole outermost block.

    Raises
    ------
    ValueError
        If ``device_type`` is no str.
    RuntimeError
        For a kind of device without autocast.

    Examples
    --------
    >>> import lucid_gpu
    >>> x = lucid_gpu.ones(2, 2)
    >>> with lucid_gpu.autocast("cpu"):
    ...     (x @ x).dtype
    lucid_gpu.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = state.cache_enabled if cache_enabled is None else cache_enabled
        self._enabled = enabled and self._possible()
        self._before: list[tuple[bool, Any, bool, bool]] = []

    def _possible(self) -> bool:
        """Whether this can be done; a warning where it cannot."""
        if self.device == "cuda" and problem() is not None:
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=3)
            return False
        if self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                f"In {self.device.upper()} autocast, but the target dtype is not supported. "
                f"Disabling autocast.\n{self.device.upper()} Autocast only supports dtypes of "
                f"{bfloat16}, {float16} currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self) -> autocast:
        kind = self.device
        before = (state.enabled[kind], state.dtype[kind], state.cache_enabled, modes.in_op)
        modes.in_op = False  # as where a checkpoint runs a user's function inside backward
        self._before.append(before)
        state.nesting += 1
        set_autocast_enabled(kind, self._enabled)
        set_autocast_dtype(kind, self.fast_dtype)
        state.cache_enabled = self._cache_enabled
        return self

    def __exit__(self, *_: object) -> None:
        enabled, fast, state.cache_enabled, modes.in_op = self._before.pop()
        state.nesting -= 1
        if not state.nesting:
            clear_autocast_cache()
        set_autocast_enabled(self.device, enabled)
        set_autocast_dtype(self.device, fast)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you "
                "mean to use autocast as a context manager? For example:\n"
                "    with lucid_gpu.autocast(device_type=...):\n        output = model(input)"
            )

        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """Decorator for ``forward`` of a custom `Function` that is to work under autocast.

    Parameters
    ----------
    fwd : callable, optional
        ``forward(ctx, ...)``.
    device_type : str
    cast_inputs : dtype, optional
        Cast floating point tensors on such a device to this, and run ``forward`` without autocast;
        otherwise it runs with it as the caller has it, and so will ``backward``.

    Raises
    ------
    ValueError
        If ``device_type`` is no str.
    """
    _checked(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    forward = fwd

    @functools.wraps(forward)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return forward(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            # without a ctx, where there is a setup_context, the first argument is an input
            cast_args, named = _cast_all(((ctx, *args), kwargs), cast_inputs, device_type)
            return forward(*cast_args, **named)

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorator for ``backward`` of such a function: autocast is as it was in ``forward``.

    Parameters
    ----------
    bwd : callable, optional
        ``backward(ctx, ...)``.
    device_type : str

    Raises
    ------
    ValueError
        If ``device_type`` is no str.
    """
    _checked(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    backward = bwd

    @functools.wraps(backward)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return backward(ctx, *args, **kwargs)

    return decorated


def _checked(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _cast_all(value: Any, to: dtype, device_type: str) -> Any:
    if isinstance(value, Mapping):
        return {k: _cast_all(v, to, device_type) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast_all(v, to, device_type) for v in value])
    return cast(value, to, device_type)
