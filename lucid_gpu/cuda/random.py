"""Random numbers on a GPU come from the default generator: a seed gives the same on all devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid_gpu.cuda.gpus import device_count
from lucid_gpu.ops import generator
from lucid_gpu.tensor import Tensor

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def manual_seed(seed: int) -> None:
    """Seed the random numbers of GPUs, and with them the CPU's: the generator is the same."""
    generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the random numbers unpredictably."""
    generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the random numbers."""
    return generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The generator's state, a CPU vector of bytes."""
    return generator.get_rng_state()


def get_rng_state_all() -> list[Tensor]:
    """The state, a vector of bytes, once for each GPU."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Go to a state, a vector of bytes, that `get_rng_state` returned."""
    generator.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Go to the states, vectors of bytes, of `get_rng_state_all`; they are one generator's."""
    for state in new_states:
        set_rng_state(state)
