"""What stands beside `lucid_gpu.utils.data` under PyTorch's names."""
