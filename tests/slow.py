"""Cases that `make test` leaves out, and `make test-all` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["slow_but"]


def slow_but(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Cases of a parameter, for ``pytest.mark.parametrize``: all but a few are marked slow."""
    return [v if v in kept else pytest.param(v, marks=pytest.mark.slow) for v in values]
