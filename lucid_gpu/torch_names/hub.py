"""`torch.hub`: weights from an address, kept in a folder of the user's; no code is fetched."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from lucid_gpu.serialization import load as _load

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
_folder: str | None = None


def get_dir() -> str:
    """The folder where files are kept.

    What `set_dir` set, ``$TORCH_HOME/hub``, ``$XDG_CACHE_HOME/torch/hub`` or
    ``~/.cache/torch/hub``: PyTorch's, so that what it has fetched is not fetched again.
    """
    return os.path.join(_get_torch_home(), "hub") if _folder is None else _folder


def _get_torch_home() -> str:
    """The folder that holds it and other downloads, as torchvision's data sets."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep files in another folder."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch a file; it is there whole or not at all.

    Parameters
    ----------
    url : str
    dst : str
        Its path.
    hash_prefix : str, optional
        What the SHA-256 of the file, in hex, begins with.
    progress : bool
        Whether to draw a bar on standard error.

    Raises
    ------
    RuntimeError
        If the hash is another.
    """
    sha = hashlib.sha256()
    path = os.path.expanduser(dst)
    with urlopen(Request(url, headers={"User-Agent": "lucid_gpu.hub"})) as source:
        total = int(source.headers.get("Content-Length") or 0)
        handle, part = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
        try:
            with open(handle, "wb") as target:
                with tqdm(total=total, disable=not progress) as bar:
                    while chunk := source.read(READ_DATA_CHUNK):
                        sha.update(chunk)
                        target.write(chunk)
                        bar.update(len(chunk))
            if hash_prefix and not sha.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{sha.hexdigest()}")'
                )
            shutil.move(part, path)
        finally:
            Path(part).unlink(missing_ok=True)


class tqdm:
    """A progress bar of bytes on standard error, with the part of tqdm's interface that is used.

    Parameters
    ----------
    total : int, optional
        How many bytes there will be.
    disable : bool
        Whether to draw nothing.
    """

    def __init__(self, total: int | None = None, disable: bool = False, **settings: Any) -> None:
        self.total, self.disable, self.n = total, disable, 0

    def update(self, n: int = 1) -> None:
        """Add to the count."""
        self.n += n
        if not self.disable:
            share = f"{self.n / self.total:4.0%} " if self.total else ""
            print(f"\r{share}{self.n / 2**20:.1f} MiB", end="", file=sys.stderr, flush=True)

    def set_description(self, desc: str | None = None) -> None:
        """Do nothing: the bar has no name."""

    def close(self) -> None:
        """End the line."""
        if self.n and not self.disable:
            print(file=sys.stderr)

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """The state dict at an address, fetched once.

    Parameters
    ----------
    url : str
    model_dir : str, optional
        Default: ``checkpoints`` in `get_dir`.
    map_location : device, str, dict or callable, optional
        See `lucid_gpu.load`.
    progress : bool
        Whether to draw a bar on standard error.
    check_hash : bool
        Whether the name, ``name-<SHA-256>.ext``, says what the hash begins with.
    file_name : str, optional
        Default: the last part of the address.
    weights_only : bool
        See `lucid_gpu.load`.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        named = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, named[1] if named else None, progress)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inside = archive.namelist()
            if len(inside) == 1:  # an old file, packed
                path = archive.extract(inside[0], folder)
    return _load(path, map_location=map_location, weights_only=weights_only)


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"lucid_gpu.hub.{name}: code from a repository is not fetched; install the package, and "
        "read its weights by lucid_gpu.hub.load_state_dict_from_url"
    )


def load(repo_or_dir: Any, model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: it would run code that it fetches."""
    _refuse("load")


def list(github: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: it would run code that it fetches."""
    _refuse("list")


def help(github: Any, model: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError: it would run code that it fetches."""
    _refuse("help")
