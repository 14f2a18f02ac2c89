"""`torch.distributed._composable`: where PyTorch kept `fully_shard` before it was public."""
