"""`torch.quantization`: the older name of `torch.ao.quantization`."""

from lucid_gpu.torch_names.ao.quantization import *  # noqa: F403
from lucid_gpu.torch_names.ao.quantization import __all__ as __all__
