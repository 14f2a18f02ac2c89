"""What stands beside `lucid_gpu.distributed` under PyTorch's names."""
