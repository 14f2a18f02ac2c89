"""What the tests of the core have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lucid_gpu.tape import door, overrides


@pytest.fixture(autouse=True)
def nobody_else() -> Iterator[None]:
    """Ask nobody whom other tests had asked of each op: handlers, and who names sparse tensors."""
    before, asked, ranks = overrides._switch.for_ever, [*door.interpreters], [*door._ranks]
    overrides._switch.for_ever, door.interpreters[:], door._ranks[:] = False, [], []
    overrides._turn()
    yield
    overrides._switch.for_ever, door.interpreters[:], door._ranks[:] = before, asked, ranks
    overrides._turn()
