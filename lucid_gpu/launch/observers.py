"""Who is told of each kernel that ran, and what they are told of a hand-written one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from lucid_gpu.core.planning import debug as debug
from lucid_gpu.device import device


class Observer(Protocol):
    """Told of each kernel: a plan (see `lucid_gpu.fusion.plan`) or a `Launched`."""

    def begin(self, kernel: Any) -> Any:
        """Before it is started; what this returns is handed to `end`."""
        ...

    def end(self, token: Any, kernel: Any) -> None:
        """After it was started."""
        ...


observers: list[Observer] = []


class Operand(NamedTuple):
    """An array a kernel read or wrote."""

    dtype: Any  # NumPy's
    shape: tuple[int, ...]


class Launched(NamedTuple):
    """A launch of a hand-written kernel.

    ``shape`` is that of the first array written; bytes count each array once.
    """

    name: str
    device: device
    shape: tuple[int, ...]
    loads: tuple[Operand, ...]
    stores: tuple[Operand, ...]
    bytes_read: int
    bytes_written: int
    source: str
    ops: tuple[str, ...] = ()
    reduction: None = None


def launched_rows(plan: Any, count: int) -> Launched:
    """A plan run over many tensors of so many elements together: it knows only stand-ins."""
    loads = tuple([Operand(load.dtype, (count,)) for load in plan.loads])
    stores = tuple([Operand(store.dtype, (count,)) for store in plan.stores])
    read_bytes, written_bytes = (
        sum([count * one.dtype.itemsize for one in some]) for some in (loads, stores)
    )
    source = plan.executable.source
    return Launched(
        plan.name, plan.device, (count,), loads, stores, read_bytes, written_bytes, source, plan.ops
    )


def observed(kernel: Any, run: Callable[..., Any], *arguments: Any) -> Any:
    """Run what starts a kernel, and tell the observers of it."""
    notified = tuple(observers)
    tokens = [observer.begin(kernel) for observer in notified]
    results = run(*arguments)
    for observer, token in zip(notified, tokens, strict=True):
        observer.end(token, kernel)
    return results


def library_call(name: str, where: device, run: Callable[..., Any], *arrays: Any) -> Any:
    """Run another library's function of some arrays that gives an array; told like a kernel."""
    call = LibraryCall(name, where, arrays)
    return observed(call, call.run, run)


class LibraryCall:
    """A call of another library: what it wrote is known when it has ended."""

    ops: tuple[str, ...] = ()
    reduction = None
    source = "// a library's own\n"
    shape: tuple[int, ...] = ()
    stores: tuple[Operand, ...] = ()
    bytes_written = 0

    def __init__(self, name: str, where: device, arrays: Sequence[Any]) -> None:
        self.name, self.device, self.arrays = name, where, arrays
        self.loads = tuple([Operand(a.dtype, a.shape) for a in arrays])
        self.bytes_read = sum([a.nbytes for a in arrays])

    def run(self, function: Callable[..., Any]) -> Any:
        result = function(*self.arrays)
        self.shape, self.bytes_written = result.shape, result.nbytes
        self.stores = (Operand(result.dtype, result.shape),)
        return result
