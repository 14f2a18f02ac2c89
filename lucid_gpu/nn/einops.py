"""einops' layers as modules: ``from lucid_gpu.nn.einops import Rearrange`` (needs einops)."""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.einsum import einsum
from lucid_gpu.tensor import Tensor

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, Module):
    """`einops.rearrange` by a fixed pattern, such as ``"b c h w -> b (c h w)"``.

    Parameters
    ----------
    pattern : str
    axes_lengths : int
        Lengths of axes that the shape alone does not tell.
    """

    def forward(self, input: Tensor) -> Any:
        """The input's elements in another shape and order."""
        return self._apply_recipe(input)


class Reduce(ReduceMixin, Module):
    """`einops.reduce` by a fixed pattern, such as ``"b c h w -> b c", "mean"``.

    Parameters
    ----------
    pattern : str
    reduction : {"min", "max", "sum", "mean", "prod", "any", "all"}
    axes_lengths : int
    """

    def forward(self, input: Tensor) -> Any:
        """The input reduced over the axes that the right side, the result's shape, leaves out."""
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, Module):
    """A sum of products of the input with learned weights, and a learned bias.

    Parameters
    ----------
    pattern : str
        Such as ``"b (head c) -> b head d"``.
    weight_shape, bias_shape : str
        The axes of the weights, ``"head c d"``, and of the bias, ``"head d"``.
    axes_lengths : int
    """

    def _create_parameters(
        self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
    ) -> None:
        self.weight = Parameter(empty(weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None
        if bias_shape is not None:
            self.bias = Parameter(empty(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self, before: str | None, lengths: Any, after: str | None, lengths_after: Any
    ) -> None:
        layer: Any = Rearrange
        self.pre_rearrange = None if before is None else layer(before, **lengths)
        self.post_rearrange = None if after is None else layer(after, **lengths_after)

    def forward(self, input: Tensor) -> Tensor:
        """The input mixed with the weights; its shape is what the pattern's right side says."""
        x = input if self.pre_rearrange is None else self.pre_rearrange(input)
        x = einsum(self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        return x if self.post_rearrange is None else self.post_rearrange(x)
