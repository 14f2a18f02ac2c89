"""What scripts that torchrun starts import; the launcher is `lucid_gpu.distributed.run`."""
