"""Whether ops are recorded, under the names' older place."""

from __future__ import annotations

from types import TracebackType

from lucid_gpu.tape.modes import enable_grad, inference_mode, no_grad, set_grad_enabled, state

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


class set_multithreading_enabled:
    """Set what `is_multithreading_enabled` returns, by a call or for a block; no other effect."""

    def __init__(self, mode: bool) -> None:
        self.before, state.multithreading = state.multithreading, mode

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state.multithreading = self.before


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` set in this thread; True at first."""
    return state.multithreading


def _is_checkpoint_valid() -> bool:
    """Whether the pass that runs accumulates into all leaves, as reentrant checkpoints need."""
    return state.task is None or state.task.everywhere
