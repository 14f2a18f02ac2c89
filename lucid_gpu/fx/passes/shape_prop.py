"""`ShapeProp`: runs a graph and notes the shape and type of every value."""

from __future__ import annotations

from typing import Any, NamedTuple

import lucid_gpu
from lucid_gpu.func.trees import tree_map
from lucid_gpu.fx.interpreter import Interpreter
from lucid_gpu.fx.node import Node
from lucid_gpu.nn import Module
from lucid_gpu.tensor import Tensor

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its elements.

    Attributes
    ----------
    shape : Size
    dtype : dtype
    requires_grad : bool
    stride : tuple of int
    memory_format : memory_format or None
        Which the strides fit.
    is_quantized : bool
    qparams : dict
    """

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """What is known of a tensor."""
    formats = [lucid_gpu.contiguous_format]
    formats += [lucid_gpu.channels_last] if result.ndim == 4 else []
    formats += [lucid_gpu.channels_last_3d] if result.ndim == 5 else []
    fits: Any = None
    if include_contiguity:
        fits = next((f for f in formats if result.is_contiguous(memory_format=f)), None)
    strides = tuple(result.stride())
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, strides, fits, False, {}
    )


class ShapeProp(Interpreter):
    """Runs a graph, and sets ``meta["tensor_meta"]`` and ``meta["type"]`` of each node.

    Parameters
    ----------
    gm : GraphModule
    """

    def __init__(self, gm: Module, fake_mode: None = None) -> None:
        super().__init__(gm)
        if fake_mode is not None:
            raise RuntimeError(
                "ShapeProp(fake_mode=...): there are no tensors without elements to run it on; "
                "leave it out, and pass real ones to propagate()"
            )

    def run_node(self, n: Node) -> Any:
        """The value of a node, which is noted in its ``meta``."""
        result = super().run_node(n)
        found = False

        def extract(value: Any) -> Any:
            nonlocal found
            if not isinstance(value, Tensor):
                return value
            found = True
            return _extract_tensor_metadata(value)

        known = tree_map(extract, result)
        if found:
            n.meta["tensor_meta"] = known
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on arguments; gives what it returns."""
        return self.run(*args)
