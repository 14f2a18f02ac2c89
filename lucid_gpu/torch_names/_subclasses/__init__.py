"""`torch._subclasses`: tensors without elements, which compilers trace with; none is made here."""

from lucid_gpu._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
