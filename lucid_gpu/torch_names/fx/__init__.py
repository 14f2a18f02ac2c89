"""What stands beside `lucid_gpu.fx` under PyTorch's names."""
