"""Launches and allocations by C: what is packed, and what is left to Python."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lucid_gpu.launch.arguments import LETTERS, Packing
from lucid_gpu.tape.native import gpu

pytestmark = pytest.mark.skipif(gpu is None, reason="the C file was not compiled")
UNSIGNED = [ctypes.c_uint] * 7
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *UNSIGNED, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)  # fmt: skip


class Driver:
    """What takes launches: it keeps the bytes of their arguments, of these sizes."""

    def __init__(self, sizes: Sequence[int], status: int = 0) -> None:
        self.sizes, self.status = sizes, status
        self.seen: list[Any] = []
        self.taker = LAUNCH(self.take)
        address = ctypes.cast(self.taker, ctypes.c_void_p).value
        assert address is not None
        self.address = address

    def take(self, function: int, *rest: Any) -> int:
        *extents, stream, table, _ = rest
        arguments = [ctypes.string_at(table[i], size) for i, size in enumerate(self.sizes)]
        self.seen.append((function, tuple(extents), stream, arguments))
        return self.status

    def start(self, packing: Packing) -> Any:
        return gpu.Start(
            self.address, 99, (1, 2, 3, 32, 2, 1), 640, lambda i: SimpleNamespace(ptr=i + 7),
            3, packing.letters, packing.sizes, packing.tail,
        )  # fmt: skip


def test_a_launch_is_handed_what_python_packs() -> None:
    letters = "Qqifd?"
    values = (2**64 - 1, -(2**63), -5, 0.1, 0.1, True)
    constants = [("q", (7,)), ("ii", (1, -2)), ("3q", (1, 2, 3))]
    sizes = [*map(struct.calcsize, letters), 8, 8, 24]
    driver = Driver(sizes)
    packing = Packing(letters, constants)
    start = driver.start(packing)
    for numbers in (values, list(values)):
        assert start(numbers) is True
    packed = [struct.pack("=" + letter, v) for letter, v in zip(letters, values, strict=True)]
    packed += [struct.pack("=" + letters, *numbers) for letters, numbers in constants]
    assert driver.seen == [(99, (1, 2, 3, 32, 2, 1, 640), 10, packed)] * 2


@pytest.mark.parametrize(
    ("letter", "number"),
    [
        ("Q", -1), ("Q", 2**64), ("q", 2**63), ("i", 2**31), ("i", -(2**31) - 1), ("f", 1e39),
        ("f", "1"), ("i", 1.0), ("?", 1), ("d", None), ("Q", None),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_to_python(letter: str, number: Any) -> None:
    driver = Driver([])
    assert driver.start(Packing([letter]))([number]) is False
    assert driver.start(Packing(["i", letter]))([1]) is False  # too few
    assert not driver.seen


def test_a_float_may_be_infinite_and_an_integer_be_a_float() -> None:
    driver = Driver([4])
    start = driver.start(Packing(["f"]))
    for number in (float("inf"), -2, float("nan")):
        assert start([number])
    assert [struct.unpack("f", seen[-1][0])[0] for seen in driver.seen[:2]] == [float("inf"), -2.0]


def test_a_launch_that_fails_is_left_to_python() -> None:
    assert Driver([8], status=700).start(Packing(["Q"]))([1]) is False


def test_arguments_of_other_types_are_not_bound() -> None:
    driver = Driver([])
    assert Packing(["2Q", "i"]).letters is None
    for other in {*LETTERS.values()} - {*"qifd?"}:
        if len(other) == 1:
            with pytest.raises(ValueError, match="packed by Python"):
                driver.start(Packing([other]))
    with pytest.raises(ValueError, match="packed by Python"):
        driver.start(Packing(["Q"] * 65))
    with pytest.raises(ValueError, match="packed by Python"):
        gpu.Start(driver.address, 1, (1,) * 6, 0, id, 0, "Q", (16, 16), b"0" * 16)


def test_the_stream_may_raise() -> None:
    driver = Driver([])

    def lost(index: int) -> Any:
        raise RuntimeError(f"no stream of {index}")

    start = gpu.Start(driver.address, 1, (1,) * 6, 0, lost, 2, "", (), b"")
    with pytest.raises(RuntimeError, match="no stream of 2"):
        start([])


def test_an_allocation_that_fails_is_told_to_who_tries_again() -> None:
    def allocate(size: int) -> int:
        if size > 10:
            raise MemoryError(size)
        if size < 0:
            raise KeyboardInterrupt
        return size

    allocator = gpu.Guarded(allocate, lambda size, error: (size, error))
    assert allocator(3) == 3
    size, error = allocator(11)
    assert size == 11 and type(error) is MemoryError and error.args == (11,)
    assert error.__traceback__ is not None
    with pytest.raises(KeyboardInterrupt):
        allocator(-1)
    with pytest.raises(TypeError):
        allocator(1, 2)
