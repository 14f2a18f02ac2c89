"""The C file: what it calls, what it refuses, and the same bits where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid_gpu.devices import loops
from lucid_gpu.devices.loops import POINTER, TABLE, loop_of
from lucid_gpu.kernels.windows import Taps, _windows

needs_native = pytest.mark.skipif(
    not loops.compiled(), reason="the C file was not compiled: there was no C compiler"
)
SOURCE = Path(loops.__file__).parent / "_native.c"


class Call:
    """One call of a ufunc as an entry of a table, and what the entry points to."""

    def __init__(self, ufunc: Any, *arrays: Any) -> None:
        kinds = [a.dtype.char for a in arrays]
        found = loop_of(ufunc, f"{''.join(kinds[: ufunc.nin])}->{''.join(kinds[ufunc.nin :])}")
        assert found is not None
        self.arguments = np.array(loops.addresses(arrays), POINTER)
        self.count = np.array([arrays[-1].size], POINTER)
        self.steps = np.array([a.strides[-1] for a in arrays], POINTER)
        at = loops.addresses([self.arguments, self.count, self.steps])
        self.words = [found[0], *at, found[1]]


@needs_native
@pytest.mark.parametrize("kind", ["f", "d", "l"])
def test_loops_are_called_in_turn(kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b = [rng.integers(1, 9, 1000).astype(kind)[::2] for _ in "ab"]
    total, out = np.empty(500, kind), np.empty(500, kind)
    calls = [Call(np.add, a, b, total), Call(np.multiply, total, b, out)]
    loops.walk(np.array([c.words for c in calls], POINTER), 2, 1)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(out, (a + b) * b)


@needs_native
def test_tables_stand_for_other_tables() -> None:
    a, one = np.zeros(7), np.ones(7)
    inner = np.array(Call(np.add, a, one, a).words, POINTER)
    middle = np.array([TABLE, loops.address(inner), 1, 3, 0] * 2, POINTER)
    outer = np.array([TABLE, loops.address(middle), 2, 5, 0] * 2, POINTER)
    loops.walk(outer, 2, 7)
    np.testing.assert_array_equal(a, np.full(7, 3.0 * 2 * 5 * 2 * 7))
    for entries, times in ((0, 1), (2, 0), (2, -1)):
        loops.walk(outer, entries, times)
    np.testing.assert_array_equal(a, np.full(7, 3.0 * 2 * 5 * 2 * 7))


@needs_native
def test_several_threads_walk_at_once() -> None:
    arrays = [np.zeros(1000) for _ in range(4)]
    one = np.ones(1000)
    calls = [Call(np.add, a, one, a) for a in arrays]
    tables = [np.array(c.words * 20, POINTER) for c in calls]
    team = [threading.Thread(target=loops.walk, args=(t, 20, 100)) for t in tables]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert all((a == 2000).all() for a in arrays)


@needs_native
def test_what_is_no_table_is_refused() -> None:
    entries = np.zeros(10, POINTER)
    refused: list[tuple[Any, Any, type[Exception]]] = [
        (entries, 3, ValueError),
        (entries, -1, ValueError),
        (entries[::2], 1, ValueError),
        (entries.astype(entries.dtype.newbyteorder()), 1, ValueError),
        (entries.astype(np.int32), 1, ValueError),
        (entries.astype(np.float64), 1, ValueError),
        (entries.tobytes(), 1, TypeError),
        (entries, "1", TypeError),
        (entries, 1 << 80, OverflowError),
    ]
    for table, count, error in refused:
        with pytest.raises(error):
            loops.walk(table, count, 1)
    for times, error in (("1", TypeError), (1 << 80, OverflowError)):
        with pytest.raises(error):
            loops.walk(entries, 2, times)
    with pytest.raises(TypeError, match="a table, how many entries, and how many times"):
        loops.walk(entries, 2)


@needs_native
def test_arguments_are_pointed_at_operands() -> None:
    bases, arguments = np.array([0, 0, 70], POINTER), np.zeros(4, POINTER)
    operands, offsets = np.array([2, 0, 1, 0], POINTER), np.array([0, 1, 2, -3], POINTER)
    for addresses in ([10, 20], (10, 20)):
        loops.point(addresses, bases, operands, offsets, arguments)
        np.testing.assert_array_equal(bases, [10, 20, 70])
        np.testing.assert_array_equal(arguments, [70, 11, 22, 7])
    own = (bases, operands, offsets, arguments)
    refused: list[tuple[tuple[Any, ...], type[Exception]]] = [
        (([1, 2, 3, 4], *own), ValueError),
        (([1], bases[:1].copy(), *own[1:]), ValueError),
        (([1], bases, -operands, offsets, arguments), ValueError),
        (([1], bases, operands, offsets[:3], arguments), ValueError),
        (([1], bases, operands, offsets, arguments[:3]), ValueError),
        (([1], bases[::-1], *own[1:]), TypeError),
        (([1], bases, operands.astype(np.int32), offsets, arguments), TypeError),
        (([1], bases, operands, [0, 1, 2, 3], arguments), TypeError),
        ((1, *own), TypeError),
        (([0.5], *own), TypeError),
        (([1 << 80], *own), OverflowError),
        (own, TypeError),
    ]
    for wrong, error in refused:
        with pytest.raises(error):
            loops.point(*wrong)
    arguments.flags.writeable = False
    with pytest.raises(TypeError):
        loops.point([1], *own)


def test_addresses_are_those_of_the_elements() -> None:
    a = np.arange(12.0).reshape(3, 4)
    views = [a, a[1:], a[:, 2], np.ones((), np.float32), a[:0], np.ma.array(a)]
    assert loops.addresses(views) == [v.ctypes.data for v in views]
    assert loops.addresses(tuple(views)) == [loops.address(v) for v in views]
    for wrong in (3.0, [1.0], None, memoryview(b"")):
        with pytest.raises(TypeError, match="expected a NumPy array, got"):
            loops.address(wrong)
        with pytest.raises(TypeError):
            loops.addresses([a, wrong])


@needs_native
def test_loops_are_found_for_the_types_that_a_ufunc_lists() -> None:
    for ufunc in (np.add, np.exp, np.less, np.matmul, np.frexp, np.logical_not, np.isnan):
        for types in ufunc.types:
            found = loop_of(ufunc, types)
            if "O" not in types:
                assert found is not None and found[0] != 0, (ufunc, types)
    for ufunc, types in ((np.add, "fd->f"), (np.add, "f->f"), (np.exp, "l->l"), (np.add, "x" * 99)):
        assert loop_of(ufunc, types) is None
    made = np.frompyfunc(lambda x: x, 1, 1)
    assert loop_of(made, "d->d") is None
    with pytest.raises(TypeError):
        loops.loop_of(len, "d->d")


SLIDES = {
    "padding": (Taps(3, -1, 1, 1, 6), Taps(3, -1, 1, 1, 5)),
    "strides and dilation": (Taps(2, -3, 2, 3, 4), Taps(3, 0, 3, 1, 1)),
    "one pixel": (Taps(1, 0, 1, 1, 6), Taps(1, 0, 1, 1, 5)),
    "only beyond the image": (Taps(2, -9, 1, 1, 3), Taps(2, 7, 2, 1, 2)),
    "from a stride's phase": (Taps(2, 1, 1, 2, 3), Taps(1, -2, 1, 1, 9)),
    "no windows": (Taps(2, 0, 1, 1, 0), Taps(1, 0, 1, 1, 5)),
    "no taps": (Taps(0, 0, 1, 1, 3), Taps(1, 0, 1, 1, 5)),
}


def read_windows(write: Any, x: Any, down: Taps, across: Taps, images_last: bool) -> Any:
    n, c, places = x.shape[0], x.shape[1], (down.steps, across.steps)
    rest = (*places, n) if images_last else (n, *places)
    out = np.full((c, down.number, across.number, *rest), 7, x.dtype)
    write(x, down, across, images_last, out)
    return out


@needs_native
@pytest.mark.parametrize("name", SLIDES)
@pytest.mark.parametrize("images_last", [False, True])
@pytest.mark.parametrize("kind", ["f", "d", "F", "D", "e", "b", "l"])
def test_windows_are_those_that_numpy_copies(kind: str, images_last: bool, name: str) -> None:
    rng, slides = np.random.default_rng(0), SLIDES[name]
    for images in (0, 1, 3):
        laid = (9 * rng.standard_normal((images, 4, 6, 5))).astype(kind)
        last = np.ascontiguousarray(laid.transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)
        for x in (laid, last, laid[::-1, ::2], laid[..., ::-1], laid[:, :, :0], laid[:, :0]):
            got = read_windows(loops.windows, x, *slides, images_last)
            expected = read_windows(_windows, x, *slides, images_last)
            np.testing.assert_array_equal(got, expected)


@needs_native
def test_windows_of_other_arrays_are_refused() -> None:
    x, down, across = np.ones((2, 3, 6, 5), "f"), *SLIDES["padding"]
    out, far = np.empty((3, 3, 3, 2, 6, 5), "f"), 1 << 31
    loops.windows(x, down, across, False, out)
    fixed = out.copy()
    fixed.flags.writeable = False
    wrong: list[tuple[Any, ...]] = [
        (x, down, across, True, out),
        (x[0], down, across, False, out),
        (x.astype("d"), down, across, False, out),
        (x.astype(">f4"), down, across, False, out),
        (x.astype(object), down, across, False, out.astype(object)),
        (x[:1], down, across, False, out),
        (x[:, :2], down, across, False, out),
        (x, down, across, False, out.reshape(-1)),
        (x, down, across, False, out[..., ::-1]),
        (x, down, across, False, fixed),
        (x, across, down, False, out),
        *[(x, down._replace(**{name: value}), across, False, out)
          for name, value in (("number", 2), ("steps", 5), ("stride", 0), ("stride", far),
                              ("start", far), ("start", -far), ("dilation", far))],
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(ValueError, match="do not belong together"):
            loops.windows(*arguments)
    for arguments in ((x, down, across, False), (x, down[:4], across, False, out), (1,) * 5):
        with pytest.raises(TypeError):
            loops.windows(*arguments)


PROGRAM = """
import sys
if sys.argv[1] == "without":
    sys.modules["lucid_gpu.devices._native"] = None  # its import fails
import hashlib
import numpy as np
import lucid_gpu as torch
from lucid_gpu.devices import loops
assert loops.available() == (sys.argv[1] == "with")
from lucid_gpu.nn import functional as F
torch.manual_seed(0)
digest = hashlib.sha256()
lstm = torch.nn.LSTM(24, 32, 2)
norm, mlp = torch.nn.LayerNorm(32), torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU())
other, conv = torch.nn.RMSNorm(32), torch.nn.Conv2d(12, 12, 3, padding=1, groups=12)
filters = torch.nn.Conv2d(12, 12, 3, padding=2, dilation=2, groups=2)
table = torch.nn.Embedding(50, 24)
parts = [lstm, norm, mlp, other, conv, filters, table]
optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()])
for step in range(5):  # of most shapes, from their third run on they walk a table
    x = torch.randn(64, 12, 24) + table(torch.arange(64 * 12).reshape(64, 12) * 7 % 50)
    y = norm(lstm(x)[0])
    q = other(y).reshape(64, 4, 12, 8)
    z = F.scaled_dot_product_attention(q, q, q, is_causal=step == 1).reshape(64, 12, 32) + y
    z = z + filters(conv(z[None].transpose(1, 2)))[0].transpose(0, 1)
    target = torch.arange(64 * 12) % 32
    loss = mlp(z).tanh().square().mean() + F.cross_entropy(z.reshape(-1, 32), target)
    loss = loss + z.cumsum(0).tanh().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.update(loss.detach().numpy().tobytes())
for p in [p for part in parts for p in part.parameters()]:
    digest.update(p.detach().numpy().tobytes())
print(digest.hexdigest())
"""


@needs_native
def test_without_it_programs_give_the_same_bits() -> None:
    environment = {**os.environ, "LUCID_NUM_THREADS": "1"}
    environment.pop("LUCID_NATIVE_LOOPS", None)
    found = set()
    for way in ("with", "without"):
        command = [sys.executable, "-c", PROGRAM, way]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        found.add(ran.stdout)
    assert len(found) == 1


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    folders = [sysconfig.get_path("include"), np.get_include()]
    if not (Path(folders[0]) / "Python.h").exists():
        pytest.skip("Python's headers are not installed")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fPIC", "-c"]
    flags += [word for f in folders for word in ("-isystem", f)]
    command = ["cc", *flags, str(SOURCE), "-o", str(tmp_path / "native.o")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
