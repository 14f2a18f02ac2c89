"""Compiled kernels that are carried to a machine and home again, in one file ``kernels.tar``.

A member ``0001.tar.xz`` holds the files that were new in CuPy's cache when it was added, so that
saving after each part costs what the part compiled. ``make gpu ARGS="--fill 90" RESULTS=FOLDER``
makes the first one without a GPU (`lucid_gpu.precompile`).
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from bench.gpu_results import MOST_FILE

CHUNK = 64 << 20  # of files before they are packed: less work is lost where one does not fit


class Kernels:
    """CuPy's cache folder, and the file in which it is carried."""

    def __init__(self, tar: Path, folder: Path) -> None:
        self.tar, self.folder = tar, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._saved: set[str] = set()
        self._full = False

    def unpack(self, tar: Path | None = None) -> str:
        """Fill the folder from the file, or from another one; a sentence on what came."""
        carried = tar or self.tar
        if not carried.exists():
            return f"no kernels are carried: {carried} is not there"
        count = 0
        with tarfile.open(carried) as outer:
            for chunk in outer:
                data = outer.extractfile(chunk)
                assert data is not None
                with tarfile.open(fileobj=data, mode="r:xz") as inner:
                    for member in inner:
                        if not member.isfile() or Path(member.name).name != member.name:
                            continue  # nothing but files of this folder is taken
                        found = inner.extractfile(member)
                        assert found is not None
                        (self.folder / member.name).write_bytes(found.read())
                        count += 1
                        if carried == self.tar:
                            self._saved.add(member.name)
        return f"{count} kernels are carried"

    def save(self) -> str:
        """Add what is new in the folder to the file; a sentence where it does not fit."""
        new = sorted(p for p in self.folder.iterdir() if p.suffix == ".cubin")
        new = [p for p in new if p.name not in self._saved]
        if not new or self._full:
            return ""
        count = 0
        for some in _chunks(new):
            if not self._add(some):
                self._full = True
                return f"{count} new kernels are saved, {len(new) - count} did not fit"
            self._saved.update(p.name for p in some)
            count += len(some)
        return f"{count} new kernels are saved"

    def _add(self, files: Iterable[Path]) -> bool:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz", preset=1) as inner:
            for path in files:
                inner.add(path, path.name)
        size = self.tar.stat().st_size if self.tar.exists() else 0
        if size + packed.tell() + 4096 > MOST_FILE:
            return False
        fresh = self.tar.with_name(self.tar.name + ".new")
        if size:
            shutil.copyfile(self.tar, fresh)
        with tarfile.open(fresh, "a") as outer:
            header = tarfile.TarInfo(f"{len(outer.getnames()) + 1:04}.tar.xz")
            header.size = packed.tell()
            packed.seek(0)
            outer.addfile(header, packed)
        os.replace(fresh, self.tar)
        return True


def _chunks(files: Iterable[Path]) -> Iterable[list[Path]]:
    some: list[Path] = []
    size = 0
    for path in files:
        some.append(path)
        size += path.stat().st_size
        if size > CHUNK:
            yield some
            some, size = [], 0
    if some:
        yield some
