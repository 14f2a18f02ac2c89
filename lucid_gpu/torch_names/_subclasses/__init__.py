"""`torch._subclasses`: tensors without elements, which compilers trace with; none is made here."""

from .fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
