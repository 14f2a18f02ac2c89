"""What costs less where plans run: ops and plans are chosen by this table, not by the device."""

from __future__ import annotations

from typing import NamedTuple

from lucid_gpu.device import device
from lucid_gpu.launch import runs_cuda_c

__all__ = ["Costs", "costs_of"]


class Costs(NamedTuple):
    """Choices that depend on the executor of a device.

    Attributes
    ----------
    calls_for_a_sum : bool
        The sum of an array that is there already is a call of the array library, and no plan.
    compares_places : bool
        The gradient of picked elements is a comparison with their places, which fuses; else their
        cotangents are added at those places.
    draws_again : bool
        Random numbers are drawn by the kernels that use them, instead of being stored and read.
    fuses_small : bool
        Few elements are worth a fused kernel too; else a few calls of the array library are faster.
    reduces_states : bool
        A reduction whose state has several parts (argmax, var) is one kernel.
    stores_beside_sums : bool
        The kernel of a reduction stores other values of what it reads; else two kernels are faster.
    stores_shared : bool
        A cotangent that several kernels need is stored; else each computes it again.
    turns : int
        Turns of a loop in a pass back that are computed by one kernel.
    walks_blocks : bool
        Plans are walked in blocks by NumPy's loops, which other recorded steps may join.
    """

    calls_for_a_sum: bool
    compares_places: bool
    draws_again: bool
    fuses_small: bool
    reduces_states: bool
    stores_beside_sums: bool
    stores_shared: bool
    turns: int
    walks_blocks: bool


_NUMPY = Costs(
    calls_for_a_sum=True,
    compares_places=False,
    draws_again=False,
    fuses_small=False,
    reduces_states=False,
    stores_beside_sums=False,
    stores_shared=True,
    turns=8,  # all of them lie within one step
    walks_blocks=True,
)
_CUDA_C = Costs(
    calls_for_a_sum=False,
    compares_places=True,
    draws_again=True,
    fuses_small=True,
    reduces_states=True,
    stores_beside_sums=True,
    stores_shared=False,
    turns=2,
    walks_blocks=False,
)


def costs_of(where: device) -> Costs:
    """The row of what runs the plans of a device."""
    if where.type == "cpu" and not runs_cuda_c(where):
        return _NUMPY
    return _CUDA_C  # on meta too: whatever can be a plan has a shape without being computed
