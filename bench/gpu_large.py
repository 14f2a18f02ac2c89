"""Tensors of 2^31 + 16 elements: every index that is kept in 32 bits somewhere is wrong there.

What is computed is known beforehand, at the ends and on both sides of 2^31, so that the host need
not do it too. ``python -m bench.gpu_large --device cpu --toy`` tries it with few elements.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.gpu_pieces import Skip, do

torch: Any = importlib.import_module("lucid_gpu")  # with PyTorch's names, as scripts see it

PAST = 16
Places = list[int]


def places(count: int) -> Places:
    """Both ends, and both sides of where 32 bits with a sign end."""
    half = count - PAST
    return [0, 1, half // 2, half - 1, half, half + 1, count - 2, count - 1]


def marked(count: int, device: str) -> tuple[Any, np.ndarray]:
    """Zeros in half precision with other numbers at these places, and those numbers."""
    values = np.arange(1, 1 + len(places(count)), dtype=np.float32) / 8
    x = torch.zeros(count, dtype=torch.float16, device=device)
    for place, value in zip(places(count), values.tolist()):
        x[place : place + 1] = value
    return x, values


def at(x: Any, count: int) -> np.ndarray:
    """What stands at the places, each read by a slice of its own."""
    found = [x[place : place + 1].float().cpu().numpy() for place in places(count)]
    return np.concatenate(found)


def elementwise(count: int, device: str) -> None:
    """A chain in one kernel, then one whose operand is written in place."""
    x, values = marked(count, device)
    y = (x * 2 + 1).relu() * 0.5 - 0.25
    near(at(y, count), values + 0.25)
    near(y[2:3].float().cpu().numpy(), [0.25])
    y += x
    near(at(y, count), 2 * values + 0.25)


def reduction(count: int, device: str) -> None:
    """Sums of all and of two long rows, the largest number and where it is."""
    x, values = marked(count, device)
    near(x.sum(dtype=torch.float32).cpu().numpy(), values.sum())
    rows = x.reshape(2, count // 2).sum(1, dtype=torch.float32).cpu().numpy()
    first = np.asarray(places(count)) < count // 2
    near(rows, [values[first].sum(), values[~first].sum()])
    near(x.max().float().cpu().numpy(), values.max())
    assert int(x.argmax()) == count - 1, f"argmax {int(x.argmax())}, not {count - 1}"


def gather(count: int, device: str) -> None:
    """Elements and rows by number, read and written."""
    x, values = marked(count, device)
    index = torch.tensor(places(count), device=device)
    near(x[index].float().cpu().numpy(), values)
    near(torch.gather(x, 0, index).float().cpu().numpy(), values)
    table = x.reshape(count // 16, 16)
    wanted = [places(count)[-1] // 16, 0]
    rows = torch.nn.functional.embedding(torch.tensor(wanted, device=device), table)
    near(rows.float().cpu().numpy()[0, -1:], values[-1:])
    added = x.index_add(0, index, torch.ones(len(values), dtype=torch.float16, device=device))
    near(at(added, count), values + 1)


def near(found: Any, wanted: Any) -> None:
    """Raise where numbers are not what they should be; all are small multiples of 1/8."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if not np.allclose(found, wanted, rtol=2e-3, atol=0):
        raise ArithmeticError(f"found {found.tolist()}, not {wanted.tolist()}")


# How many arrays of two bytes an element each needs at once.
WORKS: dict[str, tuple[Callable[[int, str], None], int]] = {
    "elementwise": (elementwise, 4),
    "reduction": (reduction, 2),
    "gather": (gather, 3),
}


def _checked(name: str, count: int, device: str) -> None:
    work, arrays = WORKS[name]
    if device == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        wanted = int(1.1 * arrays * 2 * count)
        if free < wanted:
            raise Skip(f"{wanted / 2**30:.0f} GiB are needed, the GPU has {free / 2**30:.1f} free")
    work(count, device)


def main(argv: Sequence[str] | None = None) -> int:
    """Do all three; `bench.gpu_pieces.SOME_FAILED` when one fails."""
    flags = argparse.ArgumentParser(prog="python -m bench.gpu_large", description=__doc__)
    flags.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    flags.add_argument("--toy", action="store_true", help="2^16 + 16 elements")
    options = flags.parse_args(argv)
    count = (1 << (16 if options.toy else 31)) + PAST
    return do("large", ((name, partial(_checked, name, count, options.device)) for name in WORKS))


if __name__ == "__main__":
    sys.exit(main())
