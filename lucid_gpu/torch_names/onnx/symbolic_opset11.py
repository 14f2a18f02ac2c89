"""`torch.onnx.symbolic_opset11`: the module alone, none of its functions: nothing is exported."""
