"""What stands beside `lucid_gpu.nn` under PyTorch's names."""
