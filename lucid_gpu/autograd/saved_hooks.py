"""Saved-tensor hooks: who keeps what backward needs, and how."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.ops.saved_values import SavedTensor
from lucid_gpu.tape.modes import state, watch
from lucid_gpu.tensor import Tensor

__all__ = [
    "SavedTensor",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class saved_tensors_hooks:
    """While active, ``pack_hook`` gets each tensor that an op saves for backward.

    What it returns is kept instead, and ``unpack_hook`` must make a tensor of it again when
    backward needs one. Of nested pairs the innermost is asked. Elementwise ops are then recorded
    one by one, each saving what it needs.

    Parameters
    ----------
    pack_hook : callable
        ``pack_hook(tensor) -> object``; it must not write its argument.
    unpack_hook : callable
        ``unpack_hook(object) -> Tensor``

    Examples
    --------
    >>> import lucid_gpu
    >>> x = lucid_gpu.ones(3, requires_grad=True)
    >>> with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), lucid_gpu.tensor):
    ...     y = x.exp().sum()
    >>> y.backward()
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if state.no_hooks is not None:
            raise RuntimeError(state.no_hooks)
        for hook in (self.pack_hook, self.unpack_hook):
            if not callable(hook):
                raise TypeError(f"saved_tensors_hooks() wants two functions, not {hook!r}")
        watch((*state.hooks, (self.pack_hook, self.unpack_hook)))

    def __exit__(self, *_: object) -> None:
        watch(state.hooks[:-1])


class save_on_cpu(saved_tensors_hooks):
    """While active, what ops save for backward is kept in CPU memory.

    Parameters
    ----------
    pin_memory : bool
        Accepted for PyTorch's sake: pages of host memory are not locked here.
    device_type : str
        Likewise.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """While active, setting saved-tensor hooks raises a RuntimeError with this message.

    So does entering where hooks are set.
    """
    if state.hooks:
        raise RuntimeError(error_message)
    before, state.no_hooks = state.no_hooks, error_message
    try:
        yield
    finally:
        state.no_hooks = before


class _Snapshot:
    """Stands in the graph for a tensor that `_Snapshots` keeps, as it was."""

    __slots__ = ("__weakref__", "storage", "version")

    def __init__(self, storage: Any) -> None:
        self.storage, self.version = storage, storage.version


class _Snapshots:
    """What `allow_mutation_on_saved_tensors` hands out: the values it keeps."""

    def __init__(self) -> None:
        self._values: weakref.WeakKeyDictionary[_Snapshot, Tensor] = weakref.WeakKeyDictionary()

    @property
    def cloned(self) -> dict[_Snapshot, Tensor]:
        """The values kept of what has been written since, each once."""
        return {s: self._values[s] for s in self._saved() if s.storage.version != s.version}

    @property
    def tid_to_weakhandle(self) -> dict[int, _Snapshot]:
        """What is saved now, each once, by a number."""
        return dict(enumerate(self._saved()))

    def _saved(self) -> list[_Snapshot]:
        """One of those that stand for the same value."""
        return list({(s.storage, s.version): s for s in self._values}.values())

    def take(self, tensor: Tensor) -> _Snapshot:
        snapshot = _Snapshot(tensor._memory())
        self._values[snapshot] = tensor.alias()  # copied only where somebody writes the memory
        return snapshot

    def find(self, snapshot: _Snapshot) -> Tensor:
        value = self._values.get(snapshot)
        if value is None:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in "
                "which the graph was originally recorded."
            )
        return value

    def clear(self) -> None:
        """Let go of all values: backward through what was recorded raises from now on."""
        self._values.clear()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Snapshots]:
    """While active, tensors saved for backward may be changed: backward uses their old values.

    Memory is copied only when it is written. Forward and backward must both run inside.



    Raises
    ------
    RuntimeError
        Inside another one.

    Examples
    --------
    >>> import lucid_gpu
    >>> with lucid_gpu.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = lucid_gpu.ones(3, requires_grad=True)
    ...     y = x.clone()
    ...     z = (y ** 2).sum()
    ...     _ = y.sin_()
    ...     z.backward()
    """
    if any(getattr(pack, "__func__", None) is _Snapshots.take for pack, _ in state.hooks):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    kept = _Snapshots()
    try:
        with saved_tensors_hooks(kept.take, kept.find):
            yield kept
    finally:
        kept.clear()
