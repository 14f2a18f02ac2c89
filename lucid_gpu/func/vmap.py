"""vmap: a function of one example becomes a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.func import batched_functions, batched_grad
from lucid_gpu.func.batching import BatchLevel, everywhere_batched
from lucid_gpu.func.entries import watching
from lucid_gpu.func.trees import Structure, flatten, spread, unflatten
from lucid_gpu.ops.shape import cat, expand, movedim
from lucid_gpu.tensor import Tensor

__all__ = ["everywhere_batched", "vmap"]


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function that applies ``func`` to each slice of its arguments, all at once.

    Parameters
    ----------
    func : callable
        Of tensors and trees of them, returning tensors or a tree of them.
    in_dims : int, None or tree of them
        Which dimension of each argument counts the examples; None for what they share. One value
        stands for a whole argument, or for all.
    out_dims : int, None or tree of them
        Where the results have that dimension; None for what does not depend on the example.
    randomness : {"error", "different", "same"}
        What random ops do: raise, draw for each example, or draw once for all.
    chunk_size : int, optional
        How many examples to take at once; all of them by default.

    Returns
    -------
    callable
        Keyword arguments are passed on unchanged.

    Raises
    ------
    RuntimeError
        For code that cannot be batched: data-dependent control flow (``if tensor``, ``.item()``),
        results of another shape for each example, in-place writes of batched values into tensors
        that all examples share.
    ValueError
        For a ``chunk_size`` that is not above 0; when called, for no arguments, and ``in_dims``
        that do not fit them.
    IndexError
        When called, for an output that does not have the dimension of ``out_dims``.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, in_dims, out_dims, randomness)
        batch = _batch_of(call, args, kwargs)
        if chunk_size is None or chunk_size >= batch.size:
            return _run(call, batch, out_dims)
        return _in_chunks(call, batch, chunk_size)

    return mapped


class VmapLevel(BatchLevel):
    """A `BatchLevel` that also knows how functions and gradients go through it."""

    def function(self, cls: Any, args: Any) -> Any:
        return batched_functions.call(self, cls, args)

    def grad(self, *call: Any) -> list[Any]:
        return batched_grad.grad(self, *call)


class _Call(NamedTuple):
    func: Callable[..., Any]
    in_dims: Any
    out_dims: Any
    randomness: str

    @property
    def name(self) -> str:
        return getattr(self.func, "__name__", repr(self.func))

    @property
    def as_written(self) -> str:
        return f"vmap({self.name}, in_dims={self.in_dims}, ...)(<inputs>)"


class _Batch(NamedTuple):
    """Arguments as leaves, the dimension each is mapped over (None for none), and the rest."""

    leaves: list[Any]
    dims: list[Any]
    structure: Structure
    size: int


# --- arguments ------------------------------------------------------------------------------------


def _batch_of(call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Batch:
    in_dims = call.in_dims
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call.as_written}: expected `in_dims` to be int or a (potentially nested) tuple "
            f"matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({call.name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    inputs, of_args = flatten(args)
    dims = spread(in_dims, of_args)
    if dims is None:
        raise ValueError(
            f"{call.as_written}: in_dims is not compatible with the structure of `inputs`. in_dims "
            f"has structure {flatten(in_dims)[1]} but inputs has structure {of_args}."
        )
    dims = [_checked_dim(call, leaf, dim) for leaf, dim in zip(inputs, dims, strict=True)]
    leaves, structure = flatten((args, kwargs))
    dims += [None] * (len(leaves) - len(inputs))
    return _Batch(leaves, dims, structure, _size(call, leaves, dims))


def _checked_dim(call: _Call, leaf: Any, dim: Any) -> int | None:
    """A dimension from 0."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{call.as_written}: Got in_dim={dim} for an input but in_dim must be either an "
            "integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{call.as_written}: Got in_dim={dim} for an input but the input is of type "
            f"{type(leaf)}. We cannot vmap over non-Tensor arguments, please use None as the "
            "respective in_dim"
        )
    if not -leaf.ndim <= dim < leaf.ndim:
        raise ValueError(
            f"{call.as_written}: Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {leaf.ndim} so expected in_dim to satisfy -{leaf.ndim} <= in_dim < "
            f"{leaf.ndim}."
        )
    return dim % leaf.ndim


def _size(call: _Call, leaves: list[Any], dims: list[Any]) -> int:
    sizes = [leaf.shape[d] for leaf, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"{call.as_written}: at least one of the inputs must be mapped over: Expected at least "
            "one Tensor to vmap over"
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


# --- running --------------------------------------------------------------------------------------


def _run(call: _Call, batch: _Batch, out_dims: Any) -> Any:
    with watching, VmapLevel(batch.size, call.randomness) as level:
        inputs = [
            leaf if dim is None else level.wrap(leaf if dim == 0 else movedim(leaf, dim, 0))
            for leaf, dim in zip(batch.leaves, batch.dims, strict=True)
        ]
        args, kwargs = unflatten(inputs, batch.structure)
        results, structure = flatten(call.func(*args, **kwargs))
        places = _result_dims(call, out_dims, structure, results)
        outputs = [_taken(call, level, r, d) for r, d in zip(results, places, strict=True)]
    return unflatten(outputs, structure)


def _result_dims(call: _Call, out_dims: Any, structure: Structure, results: list[Any]) -> list[Any]:
    for result in results:
        if not isinstance(result, Tensor):
            raise ValueError(
                f"vmap({call.name}, ...): `{call.name}` must only return Tensors, got type "
                f"{type(result)}. Did you mean to set out_dims= to None for output?"
            )
    if structure.kind is None and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    places = spread(out_dims, structure)
    if places is None or not all(d is None or isinstance(d, int) for d in places):
        raise ValueError(
            f"vmap({call.name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible "
            f"with the structure of `outputs`. out_dims has structure {flatten(out_dims)[1]} but "
            f"outputs has structure {structure}."
        )
    return places


def _taken(call: _Call, level: BatchLevel, result: Tensor, out_dim: int | None) -> Tensor:
    """A result with its batch where ``out_dims`` says."""
    if out_dim is None:
        if level.holds(result):
            raise ValueError(
                f"vmap({call.name}, ...): `{call.name}` can not return a BatchedTensor when "
                "out_dim is None"
            )
        return result
    rank = result.ndim + 1
    if not -rank <= out_dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{out_dim})"
        )
    if not level.holds(result):
        result = expand(result, (level.size, *result.shape))
    else:
        result = level.value(result)
    return result if out_dim % rank == 0 else movedim(result, 0, out_dim)


def _in_chunks(call: _Call, batch: _Batch, count: int) -> Any:
    """A part of the examples at a time."""
    rows: list[Sequence[Any]] = []
    for start in range(0, batch.size, count):
        n = min(count, batch.size - start)
        leaves = [
            leaf if dim is None else leaf.narrow(dim, start, n)
            for leaf, dim in zip(batch.leaves, batch.dims, strict=True)
        ]
        part = batch._replace(leaves=leaves, size=n)
        results, structure = flatten(_run(call, part, call.out_dims))
        rows.append(results)
    places = spread(call.out_dims, structure) or []
    joined = [
        column[0] if out_dim is None else cat(column, out_dim % column[0].ndim)
        for column, out_dim in zip(zip(*rows), places, strict=True)
    ]
    return unflatten(joined, structure)
