"""`torch.distributed.algorithms._checkpoint`: modules that are checkpointed as a whole."""
