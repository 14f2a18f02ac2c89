"""What stands beside `lucid_gpu.nn.attention` under PyTorch's names."""
