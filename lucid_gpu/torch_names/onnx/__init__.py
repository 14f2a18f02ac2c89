"""`torch.onnx` for code that asks whether it is being exported; exporting refuses."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

__all__ = [
    *("OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export"),
    "register_custom_op_symbolic",
]

# Settings of an export, by PyTorch's numbers.
TrainingMode = IntEnum("TrainingMode", "EVAL PRESERVE TRAINING", start=0)
OperatorExportTypes = IntEnum(
    "OperatorExportTypes", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH", start=0
)
TensorProtoDataType = IntEnum(
    "TensorProtoDataType",
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 "
    "COMPLEX64 COMPLEX128 BFLOAT16",
    start=0,
)


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
