"""What stands beside `lucid_gpu.distributed.algorithms` under PyTorch's names."""
