"""SciPy of each device: `scipy` on the CPU, `cupyx.scipy` on a GPU; imported late."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from lucid_gpu.devices import installing

INSTALL = "python -m pip install scipy"


@functools.cache
def module(kind: str, name: str, wants: str = "lucid_gpu.scipy on the CPU is computed") -> Any:
    """Return `scipy.<name>` for `kind` "cpu", `cupyx.scipy.<name>` for "cuda".

    Raises
    ------
    ModuleNotFoundError
        Where the library is missing; the message says what `wants` it and the command that
        installs it.
    """
    if kind == "cuda":
        with installing.cuda_libraries():
            return importlib.import_module(f"cupyx.scipy.{name}")
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{wants} by SciPy, which cannot be imported ({error}); install it: {INSTALL}",
            name="scipy",
        ) from error


@functools.cache
def function(kind: str, name: str) -> Callable[..., Any]:
    """Return the library's function of arrays called `name`, such as "special.jv".

    That of a distribution is a method: "stats.norm.pdf". A function that CuPy lacks is computed by
    SciPy on the host: arrays are copied there and back.
    """
    space, _, last = name.rpartition(".")
    try:
        found = getattr(_home(kind, space), last, None)
    except ModuleNotFoundError as error:
        if kind == "cpu" or not (error.name or "").startswith("cupyx.scipy."):
            raise
        found = None  # CuPy has not all of SciPy's modules
    if found is not None:
        return found
    if kind == "cpu":
        raise AttributeError(f"module 'scipy.{space}' has no attribute {last!r}")
    return functools.partial(_on_host, getattr(_home("cpu", space), last))


def _home(kind: str, space: str) -> Any:
    """Return the module called `space`, or the distribution of SciPy, as in "stats.norm"."""
    first, _, distribution = space.partition(".")
    home = module(kind, first if first == "stats" else space)
    return getattr(home, distribution, None) if first == "stats" and distribution else home


def _on_host(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import cupy

    def fetched(value: Any) -> Any:
        return cupy.asnumpy(value) if isinstance(value, cupy.ndarray) else value

    given = {name: fetched(value) for name, value in kwargs.items()}
    results = function(*[fetched(value) for value in args], **given)
    if isinstance(results, tuple):
        return tuple([cupy.asarray(result) for result in results])
    return cupy.asarray(results)
