"""`torch.quantization.qconfig`: the older name of `torch.ao.quantization.qconfig`."""

from lucid_gpu.torch_names.ao.quantization.qconfig import *  # noqa: F403
from lucid_gpu.torch_names.ao.quantization.qconfig import __all__ as __all__
