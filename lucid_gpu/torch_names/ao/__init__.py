"""`torch.ao`: `quantization` and `nn`, for code that imports them."""

from __future__ import annotations

from lucid_gpu.compat.module_names import imported


def __getattr__(name: str) -> object:
    return imported(globals(), name, modules=("nn", "quantization"))
