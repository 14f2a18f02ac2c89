"""What a GPU's failures are called, and how they are told: which op, which shapes, what to do.

What was computed is read off the error's own traceback when its text is asked for, so that nothing
is noted on the way there and no stack is looked at.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

__all__ = [
    "AcceleratorError",
    "OutOfMemoryError",
    "Telling",
    "explained",
    "out_of_memory",
    "tell_what_to_write",
    "telling",
]

# What CuPy had up to version 13 and before, by module: what to write now.
_GONE = {
    ("cupy", "util"): "cupy.memoize(...) for cupy.util.memoize(...)",
    ("cupy", "core"): "cupy._core, or a public name of cupy",
    ("cupy", "prof"): "cupyx.profiler",
    ("cupy", "cudnn"): "torch.nn.functional, which calls cuDNN where it is installed",
    ("cupy.cuda", "cudnn"): "torch.nn.functional, which calls cuDNN where it is installed",
    ("cupy.cuda", "compile_with_cache"): "cupy.RawModule(code=source).get_function(name)",
    ("cupy.cuda.compiler", "compile_with_cache"): "cupy.RawModule(code=source).get_function(name)",
}
_LOST = ("illegal", "misaligned", "assert", "unspecified launch failure", "hardware")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Telling(RuntimeError):
    """An error whose text has a place for what was computed when it was raised."""

    _sentence: Callable[[str], str] | None = None

    def __str__(self) -> str:
        if self._sentence is None:
            return super().__str__()
        return self._sentence(work_of(self.__traceback__))

    def __reduce__(self) -> tuple[Any, ...]:
        held = {name: value for name, value in vars(self).items() if name != "_sentence"}
        return _restored, (type(self), str(self), held)  # another process has no traceback


def _restored(kind: type[Telling], text: str, held: dict[str, Any]) -> Telling:
    made = kind.__new__(kind, text)
    vars(made).update(held)
    return made


class OutOfMemoryError(Telling):
    """A GPU has no memory left for a tensor. Tensors are unchanged; the process can continue."""


class AcceleratorError(Telling):
    """A kernel or a call of CUDA failed."""


E = TypeVar("E", bound=Telling)


def telling(kind: type[E], sentence: Callable[[str], str]) -> E:
    """An error with a text made of what was computed, an empty string where nobody knows."""
    made = kind(sentence(""))
    made._sentence = sentence
    return made


def tell_what_to_write(error: AttributeError) -> None:
    """Raise another error in the place of ``error`` where it misses a name that CuPy took away."""
    new = _GONE.get((getattr(error.obj, "__name__", ""), str(error.name)))
    if new is not None:
        text = f"{error} since CuPy 14; write {new}"
        raise AttributeError(text, name=error.name, obj=error.obj) from error


def size_text(count: int) -> str:
    """Bytes as PyTorch writes them: ``"2.00 GiB"``."""
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{count / (1 << 10 * unit):.2f} {_UNITS[unit]}" if unit else f"{count} bytes"


def out_of_memory(size: int, device: int, free: int, total: int, used: int, kept: int) -> Any:
    """The error of an allocation that failed.

    Parameters
    ----------
    size : int
        Bytes asked for.
    free, total : int
        What the device has.
    used, kept : int
        Bytes of the pool in arrays, and unused.
    """

    def sentence(work: str) -> str:
        return (
            f"CUDA out of memory. Tried to allocate {size_text(size)}{_for(work)}. GPU {device} "
            f"has a total capacity of {size_text(total)} of which {size_text(free)} is free. "
            f"{size_text(used)} is in use by arrays, and {size_text(kept)} is reserved by the "
            "memory pool but unallocated. Free tensors that are no longer needed, compute in "
            "smaller pieces, or call lucid_gpu.cuda.empty_cache() if other programs need what is "
            "reserved"
        )

    return telling(OutOfMemoryError, sentence)


def explained(
    error: BaseException, what: str | Callable[[str], str] = lambda work: work
) -> AcceleratorError:
    """The error of a call of CUDA, told with PyTorch's words.

    ``what`` was running: a text, or a function of what was computed.
    """
    text = str(error).partition(": ")[2] or str(error)
    end = (
        ". An error of a kernel is reported by some later call, so an earlier kernel may be the "
        "cause; for debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    )
    if any(word in text for word in _LOST):
        end += ". CUDA refuses all further work in this process: start it again"
    if isinstance(what, str):
        return AcceleratorError(f"CUDA error: {text}{_noticed(what)}{end}")
    return telling(AcceleratorError, lambda work: f"CUDA error: {text}{_noticed(what(work))}{end}")


def _for(what: str) -> str:
    return what and f" for {what}"


def _noticed(what: str) -> str:
    return what and f", noticed while running {what}"


def work_of(where: TracebackType | None) -> str:
    """What this package was computing where an error was raised, with shapes; empty if nothing.

    It is the innermost function with tensors for arguments, or the plan of a fused kernel.
    """
    result = ""
    for frame, _ in reversed([*traceback.walk_tb(where)]):
        name = frame.f_globals.get("__name__", "")
        if name.startswith("lucid_gpu."):
            work = _work(frame)
            if work:
                return result + work
            result = result or _result(frame)
    return result.removesuffix(" in ")


def _result(frame: FrameType) -> str:
    """The tensor a backend was asked for."""
    held = frame.f_locals
    if frame.f_code.co_name not in ("empty", "full") or "shape" not in held or "d" not in held:
        return ""
    return f"a {held['d'].name} tensor of shape {list(held['shape'])} in "


def _work(frame: FrameType) -> str:
    held, code = frame.f_locals, frame.f_code
    plan: Any = getattr(held.get("self"), "plan", None)
    if hasattr(plan, "ops"):
        return f"the kernel {plan.name} over shape {list(plan.shape)}"
    if "takers" in getattr(held.get("self"), "__dict__", ()) and "arguments" in held:
        arrays = [a for a in held["arguments"] if hasattr(a, "dtype") and hasattr(a, "shape")]
        return f"the kernel {held['self'].name} of {', '.join(_array(a) for a in arrays)}"
    if code.co_name.startswith("<"):
        return ""
    arguments = [held.get(name) for name in code.co_varnames[: code.co_argcount]]
    tensors = [v for v in arguments if hasattr(type(v), "_realize") and hasattr(v, "_expr")]
    if not tensors:
        return ""
    node: Any = arguments[0]
    if hasattr(node, "_edges"):
        return f"{node.name()} of {', '.join(_tensor(t) for t in tensors)}"
    who = code.co_name
    if who.startswith("_") and not who.endswith("_"):  # a part of some op: that is further out
        return ""
    return f"{who.strip('_')} of {', '.join(_tensor(t) for t in tensors)}"


def _array(a: Any) -> str:
    return f"{a.dtype}{list(a.shape)}"


def _tensor(t: Any) -> str:
    return f"{t.dtype.name}{list(t.shape)}"
