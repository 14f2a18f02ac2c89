"""cupy.cuda.memory_hook: who is told of allocations, on the thread that set the hook."""

from __future__ import annotations

import threading
from typing import Any


class _Local(threading.local):
    def __init__(self) -> None:
        self.hooks: dict[str, Any] = {}


_local = _Local()


class MemoryHook:
    name = "MemoryHook"

    def __enter__(self) -> MemoryHook:
        if self.name in _local.hooks:
            raise KeyError(f"memory hook {self.name} already exists")
        _local.hooks[self.name] = self
        return self

    def __exit__(self, *_: Any) -> None:
        del _local.hooks[self.name]

    def alloc_preprocess(self, **kwargs: Any) -> None: ...
    def alloc_postprocess(self, **kwargs: Any) -> None: ...
    def malloc_preprocess(self, **kwargs: Any) -> None: ...
    def malloc_postprocess(self, **kwargs: Any) -> None: ...
    def free_preprocess(self, **kwargs: Any) -> None: ...
    def free_postprocess(self, **kwargs: Any) -> None: ...


def _tell(what: str, **about: Any) -> None:
    for hook in list(_local.hooks.values()):
        getattr(hook, what)(**about)
