"""`torch._ops`: what `torch.ops` has: `aten`, which packages list and call, and users' ops."""

from __future__ import annotations

from typing import Any, NoReturn

import lucid_gpu
from lucid_gpu import Tensor
from lucid_gpu.profiler import record_function

from ._aten_backward import BACKWARD, FORWARD
from .library import _BY_NAME, CustomOpDef

__all__ = ["OpOverload", "OpOverloadPacket", "aten", "of_users", "ops"]


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

    def __str__(self) -> str:
        return f"aten.{self.overloadpacket.__name__}.{self.name()}"

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
        function = function or FORWARD.get(name) or BACKWARD.get(name)
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

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


class _Aten:
    """`torch.ops.aten`: an op of each name, looked up when it is called."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        packet = self.__dict__[name] = OpOverloadPacket(name)
        return packet


aten = _Aten()


class _Namespace:
    """`torch.ops.name`: the ops that `torch.library` has under this namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, op: str) -> CustomOpDef:
        name = f"{self.name}::{op}"
        if name not in _BY_NAME:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op}'")
        return _BY_NAME[name]

    def __dir__(self) -> list[str]:
        return sorted(n.partition("::")[2] for n in _BY_NAME if n.startswith(f"{self.name}::"))


def of_users(name: str) -> _Namespace | None:
    """The namespace, if a user has defined an op in it."""
    defined = any(op.startswith(f"{name}::") for op in _BY_NAME)
    return _Namespace(name) if defined else None


class _Profiler:
    """`torch.ops.profiler`: what opens and closes a `record_function`."""

    @staticmethod
    def _record_function_enter(name: str, args: str | None = None) -> record_function:
        return record_function(name, args).__enter__()

    _record_function_enter_new = _record_function_enter

    @staticmethod
    def _record_function_exit(handle: record_function) -> None:
        handle.__exit__(None, None, None)


class _Ops:
    """`torch.ops`: a namespace of each name."""

    aten, profiler = aten, _Profiler()
    loaded_libraries: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> _Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Namespace(name)

    def load_library(self, path: str) -> NoReturn:
        """Refuse with an OSError: libraries are built against PyTorch's C++."""
        raise OSError(
            f"lucid_gpu.ops.load_library: {str(path)!r} needs PyTorch's C++ library; write its ops "
            "in Python (library.custom_op). A package that also works without it, such as "
            "torchaudio, runs when the file is removed"
        )


ops = _Ops()
