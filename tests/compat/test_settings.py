"""Settings of compilers for a block or a function."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.mark.parametrize("named", ["one", "several", "keywords"])
@pytest.mark.parametrize("name", ["_dynamo", "_inductor"])
def test_settings_are_as_before_after_the_block(name: str, named: str) -> None:
    config: Any = importlib.import_module(f"lucid_gpu.{name}.config")
    setting = "verbose" if name == "_dynamo" else "max_autotune"
    arguments: Any = {
        "one": ((setting, True), {}), "several": (({setting: True, "new": 1},), {}),
        "keywords": ((), {setting: True}),
    }  # fmt: skip
    args, kwargs = arguments[named]

    @config.patch(*args, **kwargs)
    def decorated() -> bool:
        return bool(getattr(config, setting))

    with pytest.raises(ZeroDivisionError), config.patch(*args, **kwargs):
        assert getattr(config, setting) is True and hasattr(config, "new") is (named == "several")
        raise ZeroDivisionError
    assert getattr(config, setting) is False and not hasattr(config, "new")
    assert decorated() and decorated()  # as often as it is called
    assert getattr(config, setting) is False


def test_settings_of_a_part() -> None:
    config: Any = importlib.import_module("lucid_gpu._inductor.config")
    with config.patch("triton.cudagraphs", True):
        assert config.triton.cudagraphs is True
    assert config.triton.cudagraphs is False
