"""What stands beside `lucid_gpu.cuda` under PyTorch's names."""
