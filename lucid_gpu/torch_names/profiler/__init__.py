"""What stands beside `lucid_gpu.profiler` under PyTorch's names."""
