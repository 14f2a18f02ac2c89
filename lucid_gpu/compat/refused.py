"""Functions of PyTorch that packages import, and that say what to write instead when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lucid_gpu.tape.door import op

__all__ = ["refused"]


def refused(path: str, instead: str) -> Callable[..., NoReturn]:
    """A function of a name that refuses all calls with a NotImplementedError.

    Parameters
    ----------
    path : str
        Such as "sparse_csc_tensor" or "nested.nested_tensor".
    instead : str
        Why, and what to write.
    """

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"lucid_gpu.{path}: {instead}")

    function.__name__ = function.__qualname__ = path.rpartition(".")[2]
    function.__doc__ = f"Refuse with a NotImplementedError: {instead}."
    return op(function)


_LAYOUTS = (
    "sparse tensors are of the layouts COO and CSR here; write sparse_coo_tensor(indices, values)"
)

sparse_bsc_tensor = refused("sparse_bsc_tensor", _LAYOUTS)
sparse_bsr_tensor = refused("sparse_bsr_tensor", _LAYOUTS)
sparse_compressed_tensor = refused("sparse_compressed_tensor", _LAYOUTS)
sparse_csc_tensor = refused("sparse_csc_tensor", _LAYOUTS)
eig = refused("eig", "PyTorch has removed it; write linalg.eig(A)")
symeig = refused("symeig", "PyTorch has removed it; write linalg.eigh(A)")
hash_tensor = refused(
    "hash_tensor",
    "no tensor has the type uint64 of its result; write "
    "numpy.bitwise_xor.reduce(x.double().numpy().view('uint64'), axis=None)",
)
embedding_bag = refused(
    "embedding_bag",
    "write nn.functional.embedding_bag(input, weight, offsets), which gives the first of the four "
    "results",
)
