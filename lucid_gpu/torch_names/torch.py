"""Run a script or package that says ``import torch``, unedited, on lucid_gpu.

    python -m lucid_gpu.torch train.py --epochs 3
    python -m lucid_gpu.torch -m package.train --epochs 3

or, before the first import of such a package, `install_as_torch`::

    import lucid_gpu
    lucid_gpu.install_as_torch()
    import some_package

From then on ``import torch`` and ``from torch.nn import functional`` give this package's modules
in this process. Processes that it spawns must call `install_as_torch` as well; forked ones
need not.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import lucid_gpu
from lucid_gpu.dtypes import print_as

from .torch_version import STANDS_FOR, __version__

__all__ = ["install_as_torch", "main"]


class _Torch(ModuleType):
    """The module ``torch``: lucid_gpu under another name and version."""

    __version__ = __version__
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "ops":  # `lucid_gpu.ops` is a package, whose modules are no namespaces
            return importlib.import_module("lucid_gpu._ops").ops
        if name == "version":
            return importlib.import_module("lucid_gpu.torch_version")
        return getattr(lucid_gpu, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(lucid_gpu)})


def _ours(fullname: str) -> str | None:
    """The module of this package that stands for one of PyTorch's."""
    if fullname == "torch.version":  # `lucid_gpu.version` is ours
        return "lucid_gpu.torch_version"
    if fullname.startswith("torch."):
        return f"lucid_gpu{fullname[5:]}"
    if fullname.partition(".")[0] == "functorch":  # PyTorch installs it beside `torch`
        return f"lucid_gpu.{fullname}"
    return None


class _Distribution(metadata.Distribution):
    """The installed package torch, for those that ask `importlib.metadata` for its version."""

    files_of_its_own = {
        "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {STANDS_FOR}\n",
        "top_level.txt": "functorch\ntorch\n",
    }

    def read_text(self, filename: str) -> str | None:
        return self.files_of_its_own.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(str(lucid_gpu.__file__)).parents[1] / path


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``torch.x`` where ``lucid_gpu.x`` is, and gives that module itself."""

    def find_distributions(
        self, context: metadata.DistributionFinder.Context | None = None
    ) -> Iterator[metadata.Distribution]:
        """The package torch, where no other is installed and nobody asks for another place."""
        asked = vars(context or metadata.DistributionFinder.Context())
        if (asked.get("name") or "torch").lower() == "torch" and "path" not in asked:
            wanted = metadata.DistributionFinder.Context(name="torch")
            finders = [getattr(f, "find_distributions", None) for f in sys.meta_path if f != self]
            if not any(found for find in finders if find for found in find(wanted)):
                yield _Distribution()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        name = _ours(fullname)
        if name is None:
            return None
        try:
            ours = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # what would hold it is absent
            return None
        if ours is None:
            return None
        package = ours.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = _ours(spec.name)
        assert name is not None
        module = importlib.import_module(name)
        spec.loader_state = module.__spec__
        _alias_hidden(module)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec, which the import of the alias has replaced."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state


def _alias_hidden(package: ModuleType) -> None:
    """Enter the modules of a package that hide behind a function of the same name.

    The import of an alias ends by giving the package the module as an attribute: after
    ``from torch.autograd.gradcheck import ...``, `autograd.gradcheck` would be the module. What
    `sys.modules` holds already is not imported.
    """
    inside = f"{package.__name__}."
    for name, module in list(sys.modules.items()):
        if name.startswith(inside):
            attribute = package.__dict__.get(name.removeprefix(inside))
            if attribute is not None and attribute is not module:
                sys.modules.setdefault(f"torch{name[len('lucid_gpu') :]}", module)


def install_as_torch() -> None:
    """Let ``import torch`` give lucid_gpu in this process.

    ``torch.__version__`` is then "2.13.0+lucid" and our version; `lucid_gpu.__version__` stays.
    Where PyTorch is not installed, `importlib.metadata` knows a package torch of version "2.13.0".

    Raises
    ------
    RuntimeError
        If another ``torch`` has been imported: its tensors would meet ours.

    Notes
    -----
    Types, sizes and layouts print as PyTorch's from then on, since packages compare and parse
    ``str(x.dtype)`` and ``x.type()``; and ``type(x).__module__`` is "torch", by which packages
    for several array libraries choose their functions.
    """
    there = sys.modules.get("torch")
    if isinstance(there, _Torch):
        return
    if there is not None:
        raise RuntimeError(
            "PyTorch has been imported in this process, so `import torch` cannot give lucid_gpu: "
            "call install_as_torch() before the first import of torch, or run "
            "`python -m lucid_gpu.torch script.py`"
        )
    torch = _Torch("torch", lucid_gpu.__doc__)
    torch.__spec__ = importlib.machinery.ModuleSpec("torch", None, is_package=True)
    torch.__file__ = lucid_gpu.__file__
    torch.__dict__["torch"] = torch  # packages write ``torch.torch.Tensor``
    sys.modules["torch"] = torch
    sys.meta_path.insert(0, _Finder())
    print_as("torch")
    lucid_gpu.Tensor.__module__ = "torch"
    lucid_gpu.nn.Parameter.__module__ = "torch.nn.parameter"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script, or with ``-m`` a module, that imports torch."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    is_module = argv[:1] == ["-m"]
    rest = argv[1:] if is_module else argv
    if not rest or rest[0] in ("-h", "--help"):
        print(__doc__.strip() if __doc__ else "")
        return 0 if rest else 2
    name = rest[0]
    if not is_module and not os.path.exists(name):
        print(f"python -m lucid_gpu.torch: there is no file {name!r}", file=sys.stderr)
        return 2
    install_as_torch()
    sys.argv[:] = rest
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        runpy.run_path(name, run_name="__main__")
    return 0


if __name__ == "__main__":
    # the module itself, not this copy of it called __main__, is what a later call must find
    sys.exit(importlib.import_module("lucid_gpu.torch").main())
