"""Commands that install what is missing, which name the copy of this package that is in use.

No package index has a package of this name that is ours, so that none is asked for it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["binding", "command", "cuda_libraries", "extra", "reinstalling", "source"]

_PACKAGE = Path(__file__).resolve().parents[1]


def source() -> str | None:
    """The folder or the wheel that this copy was installed from; None where it is not there."""
    if (_PACKAGE.parent / "setup.py").exists() and (_PACKAGE.parent / "pyproject.toml").exists():
        return str(_PACKAGE.parent)
    import json  # all of these take long, and are for messages
    from importlib import metadata
    from urllib.parse import unquote, urlparse

    try:
        told = metadata.distribution("lucid-gpu").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    url = urlparse(json.loads(told)["url"]) if told else None
    path = unquote(url.path) if url and url.scheme == "file" else ""
    return path if path and Path(path).exists() else None


def command(*extras: str) -> str:
    """The command that installs what extras bring.

    Where nobody knows what this copy was installed from, the packages of the extras themselves.
    """
    from importlib import metadata

    where = source()
    if where is not None:
        return f"python -m pip install '{where}[{','.join(extras)}]'"
    try:
        needed = metadata.requires("lucid-gpu") or []
    except metadata.PackageNotFoundError:
        needed = []
    ends = tuple([f'extra == "{name}"' for name in extras])
    wanted = [need.partition(";")[0].strip() for need in needed if need.endswith(ends)]
    if not wanted:
        return f"install lucid_gpu from its folder or wheel with [{','.join(extras)}]"
    return " ".join(["python -m pip install", *[f"'{need}'" for need in wanted]])


def reinstalling() -> str:
    """The command that installs this copy once more, and compiles its C file."""
    where = source()
    if where is None:
        return "install lucid_gpu from its folder once more, with a C compiler"
    return f"python -m pip install --force-reinstall --no-deps {where}"


def extra(name: str) -> str:
    """The extra of a name for the CUDA version of the cupy package that is installed."""
    from importlib import metadata

    try:
        metadata.version("cupy-cuda13x")
    except metadata.PackageNotFoundError:
        return f"{name}12"
    return f"{name}13"


@contextlib.contextmanager
def cuda_libraries() -> Iterator[None]:
    """Tell the ImportError of a library of CUDA's that a block needs with what brings it."""
    try:
        yield
    except ImportError as error:
        if ".so" not in str(error):
            raise
        name = extra("cuda")
        raise ImportError(
            f"{error}: CuPy computes this by CUDA's libraries, which the extra {name} brings: "
            f"{command(name)}"
        ) from error


def binding(name: str) -> Any:
    """CuPy's binding of a library, such as "cublas".

    Raises
    ------
    ImportError
        Where the library is missing, with what brings it.
    """
    with cuda_libraries():
        return importlib.import_module(f"cupy_backends.cuda.libs.{name}")
