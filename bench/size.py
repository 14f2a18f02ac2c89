"""How large a package is on the disk, with everything that it requires."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from bench.peers import TREE


def installed_bytes(package: str) -> int:
    """Bytes of a package's files and of those of every package it requires, each counted once.

    Bytecode is left out: some installers write it, some leave it to the first import.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        Where one of them is not installed.
    """
    return sum(
        path.stat().st_size
        for name in required(package)
        for path in files(name)
        if path.suffix != ".pyc" and path.is_file()
    )


def required(package: str) -> set[str]:
    """The package and what it requires here, directly or not; extras only where one is asked."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, set[str]] = {}
    waiting = [Requirement(package)]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        extras = wanted.extras | {""}
        if name in found and extras <= found[name]:
            continue
        found[name] = found.get(name, set()) | extras
        for line in metadata.requires(name) or ():
            need = Requirement(line)
            if not need.marker or any(need.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(need)
    return set(found)


def files(package: str) -> Iterator[Path]:
    """What a package installs; of lucid_gpu, the parts of this tree that a wheel holds."""
    if package == "lucid-gpu":
        for folder in ("lucid_gpu", "kernels"):
            yield from (TREE / folder).rglob("*")
    else:
        for entry in metadata.files(package) or ():
            yield Path(str(entry.locate()))
