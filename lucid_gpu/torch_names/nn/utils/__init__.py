"""What stands beside `lucid_gpu.nn.utils` under PyTorch's names."""
