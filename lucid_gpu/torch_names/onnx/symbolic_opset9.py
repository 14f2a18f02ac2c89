"""`torch.onnx.symbolic_opset9`: names that refuse when they are called: nothing is exported."""

from .symbolic_helper import __getattr__ as __getattr__
