"""A pytest plugin for `make gpu`: the tests that take a device, as far as they come in their time.

``LUCID_TEST_SECONDS=90 python -m pytest -p bench.gpu_suite --device cuda``; the session ends in
good order when its time is up, so that its report is written.
"""

from __future__ import annotations

import os
import time
from typing import Any

_end = time.monotonic() + float(os.environ.get("LUCID_TEST_SECONDS", "inf"))


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what is the same on every machine."""
    kept = [item for item in items if "device" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def pytest_runtest_protocol(item: Any, nextitem: Any) -> None:
    """Look at the clock before each test."""
    if time.monotonic() > _end:
        item.session.shouldstop = "the time for tests is up"
