"""Families of the names of `lucid_gpu` itself: by the files that define them.

The reference has a page a family (tools/mkdocs_hooks.py). A name's family is that of its file, so
that a new name needs nothing here, and a new file a word.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lucid_gpu
from tools import reference

__all__ = ["FAMILIES", "family_of", "home", "members", "page_of"]

# Title: files of lucid_gpu/, a folder for all that are in it and nowhere else.
FAMILIES: dict[str, str] = {
    "Tensors and element types": (
        "tensor dtypes storage __init__ ops.questions ops.tensor_types ops.printing"
    ),
    "Making tensors": "ops.creation ops.sources ops.grids sparse.creation",
    "Elementwise": (
        "ops.elementwise ops.special_functions ops.incomplete_gamma ops.complex_numbers "
        "ops.complex_views"
    ),
    "Reductions and statistics": "ops.reductions ops.cumsum ops.cumulative ops.statistics",
    "Indexing, sorting, searching": (
        "ops.indexing ops.gather ops.scatter ops.selections ops.index_add ops.scatter_reduce "
        "ops.sorting ops.order"
    ),
    "Shapes and views": (
        "ops.shape ops.axes ops.splitting ops.stacking ops.strides ops.storages ops.rolled "
        "ops.diagonals ops.shuffles ops.view_copies"
    ),
    "Linear algebra": (
        "ops.matmul ops.products ops.einsum ops.distances ops.margin_losses ops.linalg"
    ),
    "Random numbers": "ops.random ops.draws ops.generator ops.multinomial",
    "Signals": "ops.spectrograms ops.signal_windows",
    "Networks": (
        "nn ops.activations ops.softmax ops.layer_norm ops.group_norm ops.dropout "
        "ops.feature_dropout ops.convolution "
        "ops.transposed_convolution ops.pooling ops.adaptive_pooling ops.recurrent "
        "ops.native_functions ops.padding"
    ),
    "Gradients": "tape autograd func",
    "Files and other libraries": "serialization ops.dlpack",
    "Devices, precision, settings": (
        "device devices cuda amp compiler torch_names _C jit ops.user_warnings compat.future"
    ),
    "Looking inside": "fusion viz",
}
_OF = {file: family for family, files in FAMILIES.items() for file in files.split()}


def home(value: Any) -> str:
    """The file that defines a value, below lucid_gpu/, as a module is named: ``ops.shape``."""
    value = inspect.unwrap(value)
    code = getattr(value, "__code__", None)
    if code is None:  # a class; one that a table made is an instance of the table's own
        owner = value if inspect.isclass(value) and value.__module__ != "lucid_gpu" else type(value)
        return owner.__module__.removeprefix("lucid_gpu.")
    place = Path(code.co_filename).relative_to(Path(lucid_gpu.__file__).parent)
    return ".".join(place.with_suffix("").parts)


def family_of(value: Any) -> str:
    """Its family.

    Raises
    ------
    KeyError
        Where its file has none; the message says where to write one.
    """
    file = home(value)
    for known in (file, file.rpartition(".")[0], file.partition(".")[0]):
        if known in _OF:
            return _OF[known]
    raise KeyError(f"{file} belongs to no family: name it in FAMILIES of tools/families.py")


def members() -> dict[str, list[str]]:
    """Every family with its names, but `Tensor`, which has a page of its own."""
    found: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name, value in reference.public(lucid_gpu).items():
        if value is not lucid_gpu.Tensor:
            found[family_of(value)].append(name)
    return found


def page_of(family: str) -> str:
    """Its page of the reference: ``api/lucid_gpu/shapes_and_views.md``."""
    return f"api/lucid_gpu/{'_'.join(re.findall('[a-z]+', family.lower()))}.md"
