"""`torch.distributed.nn`: collectives that gradients go through."""

from lucid_gpu.distributed.nn.functional import *  # noqa: F403
