"""What stands beside `lucid_gpu.utils` under PyTorch's names."""
