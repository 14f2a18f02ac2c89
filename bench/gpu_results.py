"""The folder in which `make gpu` keeps what it found: few files, none too large to be copied home.

==================== ===========================================================================
``gpu.json``         state of each part, figures, every failure with its message; made anew often
``gpu.md``           the same as tables
``journal.jsonl.gz`` a line a piece: from this the command goes on, and the first two are made
``running.log.gz``   what the process says that runs now
``logs.tar``         the whole output of each process that ended, and the suite's junit files;
                     ``logs-2.tar`` when the first is full
``kernels.tar``      the kernels that were compiled (`bench.gpu_kernels`)
==================== ===========================================================================
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

from bench.gpu_journal import mend, unpacked
from bench.gpu_report import markdown, rows

MOST_FILE = 15 << 20  # of each file; people copy home 16 MiB
LOGS = ("logs.tar", "logs-2.tar")
KEPT_ENDS = 1 << 20  # of a log for which there is no room
LONGEST_MESSAGE = 20_000

Figures = dict[str, Any]


class Results:
    """A folder of results.

    Raises
    ------
    BlockingIOError
        Where another process writes into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY)  # goes with the process
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.journal = folder / "journal.jsonl.gz"
        self.running = folder / "running.log.gz"
        mend(self.journal)
        if self.running.exists():  # what the process said with which all was ended
            self.keep_log("interrupted", self.running)

    def close(self) -> None:
        """Let others write into it."""
        os.close(self._lock)

    def write(self, document: Figures) -> None:
        """Write ``gpu.json`` and ``gpu.md``; a reader finds the old ones or the new ones."""
        told = {**document, "rows": rows(document)}
        told["benchmarks"] = {  # the samples have done their work
            peer: {
                name: {k: v for k, v in figures.items() if k != "sample"}
                for name, figures in cases.items()
            }
            for peer, cases in document["benchmarks"].items()
        }
        longest, text = LONGEST_MESSAGE, json.dumps(told, indent=1)
        while len(text) > MOST_FILE and longest > 100:
            longest //= 2
            text = json.dumps({**told, "parts": _shorter(told["parts"], longest)}, indent=1)
        _replace(self.folder / "gpu.json", text.encode() + b"\n")
        _replace(self.folder / "gpu.md", markdown(document).encode())

    def keep_log(self, name: str, log: Path) -> str:
        """Move a gzip file among the logs, and say where it is."""
        stamp = time.strftime("%H%M%S")
        packed, member = log.read_bytes(), f"{name}-{stamp}{''.join(log.suffixes[-2:])}"
        member = member.replace("/", "-").replace(" ", "-")
        where = self._add(member, packed) or self._add(member, _ends(log))
        log.unlink()
        return f"{where or 'no room for'}: {member}"

    def _add(self, member: str, data: bytes) -> str | None:
        """Put a file into the first tar with room; None where there is none."""
        for name in LOGS:
            path = self.folder / name
            size = path.stat().st_size if path.exists() else 0
            if size + len(data) + 4096 > MOST_FILE:
                continue
            fresh = path.with_name(name + ".new")
            if size:
                shutil.copyfile(path, fresh)
            with tarfile.open(fresh, "a") as tar:
                header = tarfile.TarInfo(member)
                header.size, header.mtime = len(data), int(time.time())
                tar.addfile(header, io.BytesIO(data))
            os.replace(fresh, path)
            return name
        return None

    def keep_text(self, name: str, path: Path) -> None:
        """Put another file of a part among the logs, where it was written."""
        if path.exists() and path.stat().st_size:
            packed = path.with_name(path.name + ".gz")
            packed.write_bytes(gzip.compress(path.read_bytes(), 6))
            self.keep_log(name, packed)


def _ends(log: Path) -> bytes:
    """A log without its middle."""
    text, _ = unpacked(log)
    left_out = max(0, len(text) - 2 * KEPT_ENDS)
    told = f"\n[{left_out} bytes are left out: the folder of results is full]\n".encode()
    return gzip.compress(text[:KEPT_ENDS] + told + text[-KEPT_ENDS:])


def _shorter(parts: Figures, longest: int) -> Figures:
    """The parts with every message cut; they stand in the journal as a whole."""
    return {
        name: {
            **part,
            "failed": {
                piece: message[:longest] + " [cut; see journal.jsonl.gz]" * (len(message) > longest)
                for piece, message in part.get("failed", {}).items()
            },
        }
        for name, part in parts.items()
    }


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    os.replace(fresh, path)
