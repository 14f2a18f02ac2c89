"""einops on tensors: it finds its back ends among the subclasses of a class of its own.

So ours has to be there before einops meets a tensor, and it is made with the package, whichever of
the two is imported first. opt_einsum needs nothing: it calls `lucid_gpu.tensordot`,
`lucid_gpu.transpose` and `lucid_gpu.einsum`, as of every package whose arrays it does not know.
"""

from __future__ import annotations

import contextlib
import importlib

__all__ = ["introduce"]


def introduce() -> None:
    """Make the back end of einops, where einops is installed; called when the package is there."""
    with contextlib.suppress(ImportError):  # of einops, or of a class that it has no more
        importlib.import_module("lucid_gpu.einops_backend")
