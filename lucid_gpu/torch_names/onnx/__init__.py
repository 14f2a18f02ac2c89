"""`torch.onnx` for code that asks whether it is being exported; exporting refuses."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["export", "is_in_onnx_export", "register_custom_op_symbolic"]


def is_in_onnx_export() -> bool:
    """Whether a model is being exported: never."""
    return False


def export(*args: Any, **settings: Any) -> NoReturn:
    """Refuse: RuntimeError, which names what to write instead."""
    raise RuntimeError(
        "lucid_gpu.onnx.export: models are not exported; save model.state_dict() by "
        "lucid_gpu.save, load it into the same model in PyTorch, and export from there"
    )


def register_custom_op_symbolic(*args: Any, **settings: Any) -> None:
    """Do nothing: nothing is exported."""


def unregister_custom_op_symbolic(*args: Any, **settings: Any) -> None:
    """Do nothing: nothing is exported."""
