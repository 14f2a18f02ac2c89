"""`torch.ao.nn.intrinsic`, for imports: there is no quantization, so it holds nothing."""
