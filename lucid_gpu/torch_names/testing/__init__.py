"""What stands beside `lucid_gpu.testing` under PyTorch's names."""
