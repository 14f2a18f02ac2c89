"""Sizes of caches: who is asked for them, and that no result depends on what they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.program import forget
from lucid_gpu.devices import caches as module
from lucid_gpu.devices.caches import LEAST, MOST, USUAL, Caches, caches
from lucid_gpu.fusion import blocked, blocks, native_loops

KIB = 1024
SIZES = {
    "small": Caches(8 * KIB, 128 * KIB),
    "usual": USUAL,
    "odd": Caches(33 * KIB, 1_310_720),
    "huge": Caches(1024 * KIB, 64 * 1024 * KIB),
}


@pytest.fixture(autouse=True)
def _asked_anew() -> Any:
    caches.cache_clear()
    yield
    caches.cache_clear()


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, sizes: dict[str, int] | None) -> None:
    """Let the C library say this, or know none of the names, and the kernel list a folder."""

    def sysconf(name: str) -> int:
        if sizes is None:
            raise ValueError("unrecognized configuration name")
        return sizes[name]

    monkeypatch.setattr(os, "sysconf", sysconf)
    monkeypatch.setattr(module, "FOLDER", folder)


def listed(folder: Path, *rows: tuple[str, str, str]) -> None:
    for number, row in enumerate(rows):
        place = folder / f"index{number}"
        place.mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (place / name).write_text(f"{text}\n")


def test_the_c_library_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed(tmp_path, ("1", "Data", "64K"))
    said = {"SC_LEVEL1_DCACHE_SIZE": 32 * KIB, "SC_LEVEL2_CACHE_SIZE": 512 * KIB}
    told(monkeypatch, tmp_path, said)
    assert caches() == (32 * KIB, 512 * KIB)


@pytest.mark.parametrize("answer", [0, -1, None])
def test_then_the_kernels_list(
    answer: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = ("1", "Instruction", "32K"), ("1", "Data", "64K"), ("2", "Unified", "1M")
    listed(tmp_path, *rows, ("3", "Unified", "32M"))
    names = ("SC_LEVEL1_DCACHE_SIZE", "SC_LEVEL2_CACHE_SIZE")
    told(monkeypatch, tmp_path, None if answer is None else dict.fromkeys(names, answer))
    assert caches() == (64 * KIB, 1024 * KIB)


@pytest.mark.parametrize("rows", [(), [("1", "Data", "?"), ("2", "Unified", "")]])
def test_where_nobody_knows_they_are_usual(
    rows: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed(tmp_path, *rows)
    told(monkeypatch, tmp_path, None)
    assert caches() == USUAL
    caches.cache_clear()
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "none")
    assert caches() == USUAL


def test_what_cannot_be_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("SC_LEVEL1_DCACHE_SIZE", "SC_LEVEL2_CACHE_SIZE")
    told(monkeypatch, tmp_path, dict.fromkeys(names, 1))
    assert caches() == LEAST
    caches.cache_clear()
    told(monkeypatch, tmp_path, dict.fromkeys(names, 1 << 50))
    assert caches() == MOST


def using(monkeypatch: pytest.MonkeyPatch, sizes: Caches) -> None:
    """Plan everything anew for caches of these sizes."""
    for place in (native_loops, blocks):
        monkeypatch.setattr(place, "caches", lambda: sizes)
    forget()
    monkeypatch.setattr(blocked, "_codes", {})
    monkeypatch.setattr(blocked, "_earlier", {})


def test_pieces_for_usual_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    using(monkeypatch, USUAL)
    assert (native_loops.row_bytes(False), native_loops.row_bytes(True)) == (32 * KIB, 256 * KIB)


def results() -> list[Any]:
    """Of chains, broadcasts, sums and an optimizer, in long and short rows."""
    lucid_gpu.manual_seed(0)
    rng = np.random.default_rng(0)
    found = []
    for d in ("float32", "float64", "float16"):
        x = lucid_gpu.tensor(rng.standard_normal((301, 1007)), dtype=getattr(lucid_gpu, d))
        y = lucid_gpu.tensor(rng.standard_normal(1007), dtype=getattr(lucid_gpu, d))
        x.requires_grad_()
        chain = (x.sin() * y + x.exp()).tanh() / (1 + x * x)
        strided = (x[:, ::3] * 2 + x[:, 1::3].sigmoid()[:, : x[:, ::3].shape[1]])[:, :300]
        found += [chain, chain.sum(), chain.sum(0), chain.mean(1), strided, x.t() * y[:301]]
        found += [(x % 0.75).floor(), lucid_gpu.rand(70_001)]
        (chain.sum() + strided.square().mean()).backward()
        found.append(x.grad)
    weights = [lucid_gpu.tensor(rng.standard_normal(n), requires_grad=True) for n in (7, 90_001)]
    optimizer = lucid_gpu.optim.Adam(weights)
    for _ in range(2):
        optimizer.zero_grad()
        sum((w.sin() * w).sum() for w in weights).backward()
        optimizer.step()
    return [t.detach().numpy().copy() for t in (*found, *weights)]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", [n for n in SIZES if n != "usual"])
def test_no_result_depends_on_them(
    name: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(native_loops, "build", lambda *_: None)
    using(monkeypatch, SIZES["usual"])
    expected = results()
    using(monkeypatch, SIZES[name])
    for number, (a, b) in enumerate(zip(results(), expected, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"result {number}")
    forget()
