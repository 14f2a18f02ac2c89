"""What stands beside `lucid_gpu.distributed.tensor` under PyTorch's names."""
