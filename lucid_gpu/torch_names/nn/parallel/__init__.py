"""What stands beside `lucid_gpu.nn.parallel` under PyTorch's names."""
