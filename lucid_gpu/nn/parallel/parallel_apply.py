"""Modules on several devices, each called with its own inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.device import device as Device
from lucid_gpu.nn.modules.module import Module

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[int | str | Device | None] | None = None,
) -> list[Any]:
    """What each module gives for its inputs; the work of GPUs overlaps, calls do not.

    Parameters
    ----------
    modules : sequence of Module
    inputs : sequence
        Tuples of arguments, or one argument each.
    kwargs_tup : sequence of dict, optional
        Arguments by name.
    devices : sequence, optional
        As many as there are modules; inputs are there already, as `scatter` leaves them.

    Raises
    ------
    AssertionError
        For lists of different lengths.
    """
    named = [{}] * len(modules) if kwargs_tup is None else list(kwargs_tup)
    for what, row in (("inputs", inputs), ("kwargs", named), ("devices", devices)):
        if row is not None and len(row) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} "
                f"{len(row)}"
            )
    calls = zip(modules, inputs, named)
    return [m(*(i if isinstance(i, (list, tuple)) else (i,)), **k) for m, i, k in calls]
