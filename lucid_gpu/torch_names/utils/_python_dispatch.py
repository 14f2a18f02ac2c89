"""`torch.utils._python_dispatch`: modes that see each op of PyTorch's dispatcher."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """For subclasses; entering one refuses with a RuntimeError: there is no such dispatcher."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.settings = settings

    def __enter__(self) -> NoReturn:
        raise RuntimeError(
            f"{type(self).__name__}: ops are not dispatched to __torch_dispatch__; what ran is "
            "listed by lucid_gpu.profiler.profile()"
        )

    def __exit__(self, *error: object) -> None:
        """Do nothing: it was not entered."""


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor wraps others by ``__tensor_flatten__``: none does."""
    return False


def _get_current_dispatch_mode() -> None:
    """The mode that sees ops now: none can be entered."""
