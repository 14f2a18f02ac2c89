"""`torch.utils.data._utils`: PyTorch's private files of the loader."""

from . import collate

__all__ = ["collate"]
