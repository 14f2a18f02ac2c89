"""How many warps of each instance a multiprocessor holds: by registers, shared memory, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.sass import PROCESSORS, resident
from lucid_gpu.kernels import attention, attention_backward
from tests.slow import slow_but

from .compiling import Instance, Resources, architectures, instances

LEAST = 8  # warps: two for each scheduler, so that one computes while the other waits

DYNAMIC = {
    "attention": attention.shared_bytes,
    "attention_backward": attention_backward.shared_bytes,
}
INSTANCES = list(instances())
FIRST = {i.family: i for i in reversed(INSTANCES)}.values()


@pytest.mark.parametrize("instance", slow_but(INSTANCES, *FIRST), ids=[i.label for i in INSTANCES])
def test_instances(instance: Instance) -> None:
    """In blocks as large as they get: smaller ones take fewer registers, and as many fit."""
    shared_bytes = DYNAMIC.get(instance.family, lambda *_: 0)
    dynamic = shared_bytes(instance.template, instance.kernel)
    only = (90,) if instance.kernel is attention.attention_hopper else PROCESSORS
    known = [a for a in only if a in architectures()]
    with ThreadPoolExecutor() as pool:
        compiled: list[Resources] = list(pool.map(instance.check, known))
    for architecture, found in zip(known, compiled, strict=True):
        shared = found.shared + dynamic
        threads = instance.kernel.threads
        least = LEAST
        if instance.family == "attention_backward" and instance.template.get("D", 0) > 128:
            threads, least = 128, LEAST // 2  # two tiles of keys fill the shared memory of some
        held = resident(PROCESSORS[architecture], threads, found.registers, shared)
        assert held >= least, (
            f"sm_{architecture}: {held} warps; {threads} threads, {found}, {dynamic}"
        )


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared", "wanted"),
    [
        (90, 256, 32, 0, 64),  # as many threads as there can be
        (89, 256, 32, 0, 48),
        (90, 128, 255, 0, 8),
        (90, 96, 168, 0, 12),  # 3 warps a scheduler, 4 blocks of 3
        (90, 1024, 65, 0, 0),  # no block: 72 registers a thread are more than all
        (89, 128, 32, 50 << 10, 4),  # one block, for the system takes 1 KiB
        (89, 128, 32, 49 << 10, 8),
        (120, 32, 8, 0, 24),  # blocks of one warp
    ],
)
def test_known_kernels(
    architecture: int, threads: int, registers: int, shared: int, wanted: int
) -> None:
    assert resident(PROCESSORS[architecture], threads, registers, shared) == wanted
