"""`torch._ops`: ops under the names of `torch.ops.aten`, which packages list and call."""

from __future__ import annotations

from typing import Any

import lucid_gpu
from lucid_gpu import Tensor

__all__ = ["OpOverload", "OpOverloadPacket", "aten"]


class OpOverload:
    """One form of an op, such as ``torch.ops.aten.add.Tensor``: calls the function of that name.

    NotImplementedError if there is none.
    """

    def __init__(self, packet: OpOverloadPacket, name: str) -> None:
        self.overloadpacket, self._overloadname = packet, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self.name()}')>"

    def name(self) -> str:
        """The name of the form, such as "Tensor"."""
        return self._overloadname


class OpOverloadPacket:
    """All forms of an op, such as ``torch.ops.aten.add``, as one function."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__
        function = getattr(lucid_gpu, name, None) or getattr(Tensor, name, None)
        if function is None:
            raise NotImplementedError(
                f"torch.ops.aten.{name} has no function here; what `torch` and Tensor have under "
                "their own names is called there"
            )
        return function(*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        overload = self.__dict__[name] = OpOverload(self, name)  # one object, which may be a key
        return overload

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


class _Namespace:
    """`torch.ops.aten`: an op of each name, looked up when it is called."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        packet = self.__dict__[name] = OpOverloadPacket(name)
        return packet


aten = _Namespace()
