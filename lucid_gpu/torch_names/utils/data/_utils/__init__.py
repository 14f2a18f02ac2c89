"""`torch.utils.data._utils`: PyTorch's private files of the loader."""

from . import collate, pin_memory, worker

__all__ = ["collate", "pin_memory", "worker"]
