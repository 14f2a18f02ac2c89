"""What stands beside `lucid_gpu.autograd` under PyTorch's names."""
