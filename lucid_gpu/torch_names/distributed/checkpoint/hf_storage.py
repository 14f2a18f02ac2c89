"""`torch.distributed.checkpoint.hf_storage`: for packages that import it; making one refuses."""

from __future__ import annotations

from typing import Any

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class HuggingFaceStorageReader:
    """Reads safetensors files into sharded tensors in PyTorch; NotImplementedError here."""

    def __init__(self, path: str, *args: Any, **settings: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__}({path!r}): checkpoints of several ranks are written by "
            "distributed.checkpoint.save and read by load; one process reads safetensors files "
            "with safetensors.numpy"
        )


class HuggingFaceStorageWriter(HuggingFaceStorageReader):
    """Writes sharded tensors to safetensors files in PyTorch; NotImplementedError here."""
