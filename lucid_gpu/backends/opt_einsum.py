"""``backends.opt_einsum``: in which order `einsum` takes three operands and more.

Where the package opt_einsum is installed it finds a cheap one, else they are taken as they stand.

Examples
--------
>>> import lucid_gpu
>>> lucid_gpu.backends.opt_einsum.strategy
'auto'
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["flags", "get_opt_einsum", "is_available", "set_flags"]

STRATEGIES = ("auto", "greedy", "optimal")
if TYPE_CHECKING:
    enabled: bool
    strategy: str | None
_settings: dict[str, Any] = {"enabled": True, "strategy": "auto"}


@functools.cache
def is_available() -> bool:
    """Whether the package opt_einsum is installed."""
    return importlib.util.find_spec("opt_einsum") is not None


def get_opt_einsum() -> Any:
    """The package opt_einsum, or None."""
    return importlib.import_module("opt_einsum") if is_available() else None


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[Any, Any]:
    """Change both settings, where one is given; the earlier ones come back."""
    module: Any = sys.modules[__name__]
    earlier = module.enabled, module.strategy
    if _enabled is not None:
        module.enabled = _enabled
    if _strategy is not None:
        module.strategy = _strategy
    return earlier


@contextlib.contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Other settings for a block."""
    earlier = set_flags(enabled, strategy)
    try:
        yield
    finally:
        _settings.update(enabled=earlier[0], strategy=earlier[1] or "auto")


class _Settings(ModuleType):
    """This module, whose settings look at what they are given."""

    @property
    def enabled(self) -> bool:
        return bool(_settings["enabled"] and is_available())

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value and not is_available():
            raise ValueError(
                f"opt_einsum is not available, so setting `enabled` to {value} will not reap the "
                "benefits of calculating an optimal path for einsum: python -m pip install "
                "opt_einsum"
            )
        _settings["enabled"] = bool(value)

    @property
    def strategy(self) -> str | None:
        return _settings["strategy"] if is_available() else None

    @strategy.setter
    def strategy(self, value: str) -> None:
        lacking = "available" if not is_available() else "enabled"
        if not self.enabled:
            raise ValueError(
                f"opt_einsum is not {lacking}, so setting a `strategy` to {value} will not be "
                "meaningful."
            )
        if value not in STRATEGIES:
            raise ValueError(
                f"`strategy` must be one of the following: [auto, greedy, optimal] but is {value}"
            )
        _settings["strategy"] = value


def path(equation: str, shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, int]]:
    """Which two operands to take next, as places among those left; what they give comes last."""
    return _path(equation, shapes, _settings["strategy"])


@functools.lru_cache(256)
def _path(equation: str, shapes: Any, strategy: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = get_opt_einsum().contract_path(
        equation, *shapes, shapes=True, optimize=strategy
    )[0]
    return pairs


sys.modules[__name__].__class__ = _Settings
