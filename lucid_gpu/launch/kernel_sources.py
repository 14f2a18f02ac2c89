"""Where the hand-written CUDA C sources lie."""

from __future__ import annotations

from pathlib import Path

from lucid_gpu.devices import installing

_PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """The folder of CUDA C sources: inside an installed package, or beside it in a source tree.

    Raises
    ------
    FileNotFoundError
        If neither is there.
    """
    # The installed place first: in site-packages a folder `kernels` would be somebody else's.
    for folder in (_PACKAGE / "_kernels", _PACKAGE.parent / "kernels"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"lucid_gpu found its CUDA sources neither in {_PACKAGE / '_kernels'} nor in "
        f"{_PACKAGE.parent / 'kernels'}; {installing.reinstalling()}"
    )


def kernel_path(name: str) -> Path:
    """The file of one CUDA source, such as ``"softmax.cu"``.

    Raises
    ------
    FileNotFoundError
        If there is no such source; the message lists those there are.
    """
    folder = kernel_folder()
    path = folder / name
    if not path.is_file():
        known = sorted(p.name for p in folder.iterdir() if p.suffix in {".cu", ".cuh", ".h"})
        raise FileNotFoundError(f"no kernel source {name!r} in {folder}; there are: {known}")
    return path
