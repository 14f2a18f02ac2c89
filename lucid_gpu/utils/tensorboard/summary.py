"""`torch.utils.tensorboard.summary`: what an event file holds, made by tensorboardX."""

from tensorboardX.summary import *  # noqa: F403
