"""`torch.quantization.observer`: the older name of `torch.ao.quantization.observer`."""

from lucid_gpu.torch_names.ao.quantization.observer import *  # noqa: F403
from lucid_gpu.torch_names.ao.quantization.observer import __all__ as __all__
