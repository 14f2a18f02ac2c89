"""Batches on their way to a GPU: page-locked memory, and copies beside the computation."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from lucid_gpu.devices import resolve
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.tensor import Tensor

__all__ = ["pin_memory", "pinner", "prefetch"]


def pinner() -> Callable[[Any], Any] | None:
    """`pin_memory`; without a GPU None, with PyTorch's warning."""
    if problem() is None:
        return pin_memory
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        stacklevel=5,
    )
    return None


def pin_memory(data: Any) -> Any:
    """The same batch, its CPU tensors copied into page-locked memory.

    Parameters
    ----------
    data : Tensor, container of them, or object
        An object with a method ``pin_memory`` is asked to do it itself; what is neither comes
        back as it is.
    """

    def pinned(value: Any) -> Any:
        on_gpu = isinstance(value, Tensor) and value.device.type != "cpu"
        return value if on_gpu else value.pin_memory()

    return _each(data, "pin_memory", pinned)


def _each(data: Any, method: str, function: Callable[[Any], Any]) -> Any:
    """A batch with a function applied to everything in it that has a method of this name."""
    if hasattr(data, method):
        return function(data)
    if isinstance(data, Mapping):
        done = {key: _each(value, method, function) for key, value in data.items()}
        if not isinstance(data, MutableMapping):
            return done
        same = copy.copy(data)
        same.update(done)
        return same
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_each(value, method, function) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(_each(value, method, function) for value in data)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [_each(value, method, function) for value in data]
    return data


def prefetch(batches: Iterable[Any], device: Any) -> Iterator[Any]:
    """Batches on a device, the next one being copied while the current one is worked on.

    Parameters
    ----------
    batches : iterable
        A `DataLoader`, best with ``pin_memory=True``: copies from other memory are not beside
        anything.
    device : device or str
        On the CPU batches are passed on unchanged.

    Examples
    --------
    ``for x, y in prefetch(loader, "cuda"): ...``
    """
    where = resolve(device)
    if where.type == "cpu":
        yield from batches
        return
    from lucid_gpu.cuda import Stream, current_stream, stream

    side = Stream(where)
    ahead: list[tuple[Any, Any]] = []
    for batch in batches:
        with stream(side):
            moved = _each(batch, "to", lambda t: t.to(where, non_blocking=True))
            ahead.append((moved, side.record_event()))
        if len(ahead) > 1:
            yield _arrived(*ahead.pop(0), current_stream(where))
    for moved, event in ahead:
        yield _arrived(moved, event, current_stream(where))


def _arrived(batch: Any, event: Any, stream: Any) -> Any:
    """The batch, for use on a stream, and its memory not for others before that has passed."""
    stream.wait_event(event)

    def used(value: Any) -> Any:
        value.record_stream(stream)
        return value

    return _each(batch, "record_stream", used)
