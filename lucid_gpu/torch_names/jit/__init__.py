"""`torch.jit` for code that is decorated with it: functions come back as they are.

Elementwise ops fuse without a compiler (docs/fusion.md), so there is nothing that scripting or
tracing could add. What needs the compiled program itself, as `save` does, refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from lucid_gpu import futures
from lucid_gpu.nn import Module

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

T = TypeVar("T")
Attribute = Any
Future = futures.Future


class Error(RuntimeError):
    """What `torch.jit` raises; nothing here does."""


class TracerWarning(Warning):
    """A warning of the tracer, for filters; there is no tracer."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silence the tracer's warnings: there are none."""


class ScriptModule(Module):
    """A module: what PyTorch's is beyond that, is compiled. For subclasses and `isinstance`.

    TypeError for arguments.
    """


class RecursiveScriptModule(ScriptModule):
    """What no module is: for `isinstance`."""


class ScriptFunction:
    """What no function is: for `isinstance`."""


class CompilationUnit:
    """Text of TorchScript, which is not compiled here."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        if lang is not None:
            _refuse("CompilationUnit", "write the function in Python")


def script(
    obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> T:
    """The function, class or module itself."""
    return obj


def trace(
    func: T | None = None,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
) -> Any:
    """The function or module itself, which is not run; without one, a decorator."""
    return (lambda func: func) if func is None else func


def trace_module(mod: T, inputs: dict[str, Any], *args: Any, **settings: Any) -> T:
    """The module itself."""
    return mod


def script_method(fn: T) -> T:
    """The method itself."""
    return fn


def script_if_tracing(fn: T) -> T:
    """The function itself."""
    return fn


_script_if_tracing = script_if_tracing


def export(fn: T) -> T:
    """The method itself."""
    return fn


def unused(fn: T) -> T:
    """The method itself."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The method itself; called with ``drop``, a decorator."""
    return drop if callable(drop) else lambda fn: fn


def interface(obj: T) -> T:
    """The class itself."""
    return obj


def annotate(the_type: Any, the_value: T) -> T:
    """The value."""
    return the_value


_isinstance = isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type; of ``List[T]`` and the like, whether it is a list of such."""
    return _is(obj, target_type)


def _is(obj: Any, kind: Any) -> bool:
    if _isinstance(kind, (tuple, list)):
        return any(_is(obj, k) for k in kind)
    origin: Any = getattr(kind, "__origin__", None)
    parts: tuple[Any, ...] = getattr(kind, "__args__", ())
    if origin is None:
        return obj is None if kind is None else _isinstance(obj, kind)
    if not _isinstance(origin, type):  # Union, Optional
        return any(_is(obj, part) for part in parts)
    if not _isinstance(obj, origin):
        return False
    if origin is dict:
        return all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in obj.items())
    if origin is tuple and parts[-1:] != (...,):
        return len(obj) == len(parts) and all(map(_is, obj, parts))
    return all(_is(o, parts[0]) for o in obj)


def is_scripting() -> bool:
    """Whether this is compiled code: never."""
    return False


def is_tracing() -> bool:
    """Whether a tracer is running: never."""
    return False


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function now; `wait` gives its value."""
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The value of what `fork` gave."""
    return future.wait()


def freeze(mod: T, preserved_attrs: Any = None, optimize_numerics: bool = True) -> T:
    """The module itself."""
    return mod


def optimize_for_inference(mod: T, other_methods: Any = None) -> T:
    """The module itself."""
    return mod


@contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """Do nothing for a while."""
    yield


@contextmanager
def fuser(name: str) -> Any:
    """Do nothing for a while."""
    yield


class strict_fusion:
    """Do nothing for a while."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: Any) -> None:
        """Do nothing."""


def set_fusion_strategy(strategy: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Set nothing; the strategy before was none."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Do nothing."""


def onednn_fusion_enabled() -> bool:
    """Whether oneDNN fuses: it is not used."""
    return False


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    """Refuse: RuntimeError, which names what to write instead."""
    _refuse("save", "save model.state_dict() by lucid_gpu.save")


def load(
    f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: Any = False
) -> NoReturn:
    """Refuse: RuntimeError, which names what to write instead."""
    _refuse(
        "load", "build the model and load its state dict, saved by torch.save, by lucid_gpu.load"
    )


def _refuse(name: str, instead: str) -> NoReturn:
    raise RuntimeError(f"lucid_gpu.jit.{name}: there is no TorchScript; {instead}")


def _get_trace_graph(f: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse: RuntimeError, which names what to write instead."""
    _refuse("_get_trace_graph", "lucid_gpu.explain(y) and viz.graph(y) show what ran")


def _overload(func: T) -> T:
    return func


_overload_method = _overload


def _unwrap_optional(x: T | None) -> T:
    assert x is not None, "Unwrapping null optional"
    return x
