"""`torch._inductor` for code that sets its settings: kernels are not made by PyTorch's compiler."""

from . import config

__all__ = ["config"]
