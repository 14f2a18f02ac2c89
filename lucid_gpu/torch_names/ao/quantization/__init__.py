"""`torch.ao.quantization` for models that can be quantized in PyTorch; here they only run."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.nn import Identity, Module

from . import observer, qconfig
from .observer import (
    FakeQuantizeBase,
    HistogramObserver,
    MinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    refuse,
)
from .qconfig import QConfig

__all__ = [
    "DeQuantStub",
    "FakeQuantizeBase",
    "HistogramObserver",
    "MinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "fuse_modules",
    "fuse_modules_qat",
    "observer",
    "prepare",
    "prepare_qat",
    "qconfig",
    "quantize_dynamic",
]


class QuantStub(Identity):
    """Where a model's values become whole numbers in PyTorch, once it is converted: its input.

    Parameters
    ----------
    qconfig : object, optional
        What PyTorch would convert it by.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig


class DeQuantStub(QuantStub):
    """Where they become floating point again, once it is converted: its input."""


class QuantWrapper(Module):
    """A module between `QuantStub` and `DeQuantStub`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.add_module("quant", QuantStub())
        self.add_module("dequant", DeQuantStub())
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """The module's output."""
        return self.dequant(self.module(self.quant(X)))


def prepare(model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("prepare")


def prepare_qat(model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("prepare_qat")


def convert(module: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("convert")


def quantize_dynamic(model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("quantize_dynamic")


def fuse_modules(model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("fuse_modules")


def fuse_modules_qat(model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: there is no quantization."""
    refuse("fuse_modules_qat")
