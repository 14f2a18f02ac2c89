"""What stands beside `lucid_gpu.distributed.checkpoint` under PyTorch's names."""
