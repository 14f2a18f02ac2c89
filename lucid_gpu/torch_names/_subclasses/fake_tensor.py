"""`torch._subclasses.fake_tensor`: for `isinstance`, and the block that leaves a mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lucid_gpu import Tensor
from lucid_gpu.tape.overrides import disabled

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake", "unset_fake_temporarily"]


class FakeTensor(Tensor):
    """What no tensor is."""

    __torch_function__ = staticmethod(disabled)


class FakeTensorMode:
    """What makes them; refuses with a RuntimeError."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise RuntimeError(
            "FakeTensorMode: there are no fake tensors; those of torch.device('meta') have no "
            "elements either"
        )


def is_fake(x: object) -> bool:
    """Whether an object is a tensor without elements: none is."""
    return False


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A block in which tensors have elements, as they have outside."""
    yield None
