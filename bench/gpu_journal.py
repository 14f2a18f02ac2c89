"""What `make gpu` has found so far: one line of JSON a piece, in one compressed file.

A piece is what can be done or lost by itself: a test, a family of kernels under a tool, a case of
the benchmarks. The process that does the work writes a line before a piece and one after it, and
each line is on the disk before the next piece begins; so whatever ends that process, or the whole
machine, takes one piece with it, whose name stands there. `gpu.json` is made from these lines.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GZIP = 31  # zlib's number for a gzip header and the largest window
VARIABLE = "LUCID_GPU_JOURNAL"  # where the processes of the parts find the file

Entry = dict[str, Any]
# Outcomes of a piece; "lost" is one that another's fault kept from being tried.
BEGAN, PASSED, FAILED, SKIPPED, LOST = "began", "passed", "failed", "skipped", "lost"
FORGOTTEN = "forgotten"  # of a piece, or of a part with all its pieces
ENDED = (PASSED, FAILED, SKIPPED)


class Stream:
    """A gzip file that grows; what was written can be read back whatever happens next."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._packer = zlib.compressobj(6, zlib.DEFLATED, GZIP)
        self.size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Append, down to the disk's cache."""
        packed = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self.size += len(packed)
        _all(self._file, packed)

    def close(self) -> None:
        """End the file in good order."""
        _all(self._file, self._packer.flush())
        os.close(self._file)


def _all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def unpacked(path: Path) -> tuple[bytes, bool]:
    """A gzip file's text as far as it goes, and whether it ends in good order."""
    data, found = path.read_bytes() if path.exists() else b"", []
    while data:
        reader = zlib.decompressobj(GZIP)
        try:
            found.append(reader.decompress(data))
        except zlib.error:  # a disk that was full, or a copy cut short
            return b"".join(found), False
        if not reader.eof:
            return b"".join(found), False
        data = reader.unused_data
    return b"".join(found), True


def read(path: Path) -> list[Entry]:
    """Every whole line; of a damaged journal, those that are entries."""
    text, _ = unpacked(path)
    found = []
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # its piece is run again
            continue
        if isinstance(entry, dict) and "part" in entry and "outcome" in entry:
            found.append(entry)
    return found


def mend(path: Path) -> None:
    """Make a journal whose writer was killed one that can be appended to."""
    text, good = unpacked(path)
    if good and text[-1:] in (b"", b"\n"):
        return
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    stream = Stream(fresh)
    stream.write(text[: text.rfind(b"\n") + 1])
    stream.close()
    os.replace(fresh, path)


class Journal:
    """Where the pieces of one part are written."""

    def __init__(self, path: Path, part: str) -> None:
        mend(path)
        self.part = part
        self._stream = Stream(path)

    @classmethod
    def told(cls, part: str) -> Journal:
        """The one that the environment names; what is written without one is gone."""
        return cls(Path(os.environ.get(VARIABLE) or os.devnull), part)

    def write(self, piece: str | None, outcome: str, **figures: Any) -> None:
        """Add a line; without a piece it is about the part."""
        entry = {"part": self.part, "piece": piece, "outcome": outcome, **figures}
        self._stream.write(json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """End it in good order."""
        self._stream.close()


def note(path: Path, part: str, piece: str | None, outcome: str, **figures: Any) -> None:
    """Add one line."""
    journal = Journal(path, part)
    journal.write(piece, outcome, **figures)
    journal.close()


def pieces(entries: list[Entry], part: str) -> dict[str, Entry]:
    """The last word on each piece of a part; one that began and did not end says so."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry["part"] == part and entry["outcome"] == FORGOTTEN:
            if entry["piece"] is None:
                found.clear()
            found.pop(entry["piece"], None)
        elif entry["part"] == part and entry["piece"] is not None:
            before = found.get(entry["piece"], {})
            if entry["outcome"] == BEGAN and before:  # what was said of it stands till it ends
                entry = {**entry, "before": before.get("before", before)}
            found[entry["piece"]] = entry
    return found


def begun(entries: list[Entry], part: str) -> Iterator[str]:
    """Pieces that began and did not end."""
    for name, entry in pieces(entries, part).items():
        if entry["outcome"] == BEGAN:
            yield name


def last_word(entries: list[Entry], part: str) -> Entry | None:
    """How a part ended when it was last run; None where it never ended."""
    found = None
    for entry in entries:
        if entry["part"] == part and entry["piece"] is None:
            found = None if entry["outcome"] == FORGOTTEN else entry
    return found
