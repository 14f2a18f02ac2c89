"""What costs less where plans run: ops choose by this table, and not by the device."""

from __future__ import annotations

from typing import NamedTuple

from lucid_gpu.device import device
from lucid_gpu.launch import runs_cuda_c

__all__ = ["Costs", "costs_of"]


class Costs(NamedTuple):
    """Choices that depend on the executor of a device.

    Attributes
    ----------
    compares_places : bool
        The gradient of picked elements is a comparison with their places, which fuses; else their
        cotangents are added at those places.
    draws_again : bool
        Random numbers are drawn by the kernels that use them, instead of being stored and read.
    fuses_small : bool
        Few elements are worth a fused kernel too; else a few calls of the array library are faster.
    reduces_states : bool
        A reduction whose state has several parts (argmax, var) is one kernel.
    walks_blocks : bool
        Plans are walked in blocks by NumPy's loops, which other recorded steps may join.
    """

    compares_places: bool
    draws_again: bool
    fuses_small: bool
    reduces_states: bool
    walks_blocks: bool


_NUMPY = Costs(
    compares_places=False,
    draws_again=False,
    fuses_small=False,
    reduces_states=False,
    walks_blocks=True,
)
_CUDA_C = Costs(
    compares_places=True,
    draws_again=True,
    fuses_small=True,
    reduces_states=True,
    walks_blocks=False,
)


def costs_of(where: device) -> Costs:
    """The row of what runs the plans of a device."""
    return _CUDA_C if runs_cuda_c(where) else _NUMPY
