"""`torch.ao.nn.qat`, for imports: there is no quantization, so it holds nothing."""
