"""Random number state, under the names of ``torch.random``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lucid_gpu.ops.generator import default_generator as default_generator
from lucid_gpu.ops.generator import get_rng_state as get_rng_state
from lucid_gpu.ops.generator import initial_seed as initial_seed
from lucid_gpu.ops.generator import manual_seed as manual_seed
from lucid_gpu.ops.generator import seed as seed
from lucid_gpu.ops.generator import set_rng_state as set_rng_state


@contextlib.contextmanager
def fork_rng(
    devices: Any = None, enabled: bool = True, device_type: str = "cuda"
) -> Iterator[None]:
    """Give the default generator its state back at the end of a block.

    There is one generator for all devices, so ``devices`` and ``device_type`` change nothing.
    """
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)
