"""Streams of random numbers: a seed, and how many draws were made."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, resolve
from lucid_gpu.ops.creation import tensor
from lucid_gpu.tape.door import type_name
from lucid_gpu.tensor import Tensor

DEFAULT_SEED = 67280421310721  # PyTorch's, before `manual_seed`
_STATE_BYTES = 16


class Generator:
    """A stream of random numbers: a seed and a count of draws.

    Parameters
    ----------
    device : device or str
        Where the tensors it fills are; the numbers do not depend on it.

    Attributes
    ----------
    device : device
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device: device = resolve(device)
        self._seed = DEFAULT_SEED
        self._draws = 0
        self._lock = threading.Lock()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed from its beginning; negative seeds count from 2**64 down.

        Raises
        ------
        ValueError
            For a seed outside of [-2**63, 2**64).
        """
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(
                f"Overflow when unpacking long long: seed {seed} is not within [-2**63, 2**64)"
            )
        backend(CPU).once("manual_seed()", _ON_HOST)
        with self._lock:
            self._seed, self._draws = seed & ((1 << 64) - 1), 0
        return self

    def seed(self) -> int:
        """Start a stream that nobody can foresee; returns its seed."""
        return self.manual_seed(secrets.randbits(64)).initial_seed()

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a CPU tensor of 16 bytes, shape (16,)."""
        with self._lock:
            state = self._seed.to_bytes(8, "little") + self._draws.to_bytes(8, "little")
        return tensor(list(state), dtype=dt.uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go to a state that `get_state` gave, a uint8 tensor of shape (16,).

        Raises
        ------
        TypeError, RuntimeError
            For another type or size of tensor.
        """
        if not isinstance(new_state, Tensor) or new_state.dtype is not dt.uint8:
            raise TypeError("RNG state must be a ByteTensor (uint8)")
        if tuple(new_state.shape) != (_STATE_BYTES,):
            raise RuntimeError(
                f"Expected an RNG state of size {_STATE_BYTES} but found the input RNG state size "
                f"to be {new_state.numel()}"
            )
        backend(CPU).once("set_state()", _ON_HOST)
        state = bytes(new_state.tolist())
        with self._lock:
            self._seed = int.from_bytes(state[:8], "little")
            self._draws = int.from_bytes(state[8:], "little")
        return self

    def clone_state(self) -> Generator:
        """A generator of its own in the same state."""
        other = Generator(self.device)
        return other.set_state(self.get_state())

    def next_draw(self) -> tuple[int, int]:
        """Seed and offset of a draw, which nobody else gets."""
        with self._lock:
            offset = self._draws
            self._draws = (offset + 1) & ((1 << 64) - 1)
            seed = self._seed
        return backend(CPU).draw(self, seed, offset)

    def go_back(self, draws: int) -> None:
        """Go to where so many draws had been made."""
        with self._lock:
            self._draws = draws

    def begin_replay(self, draws: int) -> tuple[int, int]:
        """Take so many draws for a graph; gives the seed, and the offset of the first."""
        with self._lock:
            first = self._draws
            self._draws = (first + draws) & ((1 << 64) - 1)
            return self._seed, first

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "seed": self._seed, "draws": self._draws}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["device"])  # type: ignore[misc]
        self._seed, self._draws = state["seed"], state["draws"]

    def __repr__(self) -> str:
        return f"<lucid_gpu.Generator device={self.device} seed={self._seed} draws={self._draws}>"


_ON_HOST = "a generator's state changes on the host"


# One for all devices: a script draws the same numbers wherever its tensors are.
default_generator = Generator()


def manual_seed(seed: Any) -> Generator:
    """Seed the default generator, of all devices."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Give the default generator an unpredictable seed, and return it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state, a vector of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state, a vector of bytes."""
    default_generator.set_state(new_state)


def _draw(generator: Generator | None, where: device) -> tuple[int, int]:
    if where.type == "meta":
        return 0, 0
    if generator is None:
        return default_generator.next_draw()
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be a Generator or None, not {type_name(generator)}")
    if generator.device.type != where.type:
        raise RuntimeError(
            f"Expected a '{where.type}' device type for generator but found "
            f"'{generator.device.type}'"
        )
    return generator.next_draw()


FUNCTIONS = (manual_seed, seed, initial_seed, get_rng_state, set_rng_state)
