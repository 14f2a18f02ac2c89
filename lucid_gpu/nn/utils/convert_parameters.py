"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after another; gradients flow through.

    Parameters
    ----------
    parameters : iterable of Tensor, any shapes

    Returns
    -------
    Tensor, shape (elements of all,)
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give parameters the elements of a vector, in order; they become views of it.

    Parameters
    ----------
    vec : Tensor, shape (n,)
        Of at least as many elements as the parameters.
    parameters : iterable of Tensor, any shapes

    Raises
    ------
    TypeError
        For anything but a tensor.
    RuntimeError
        For one of too few elements.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected lucid_gpu.Tensor, but got: {type(vec).__name__}")
    start, parameter_list = 0, list(parameters)
    if sum(p.numel() for p in parameter_list) > vec.numel():
        raise RuntimeError(
            f"a vector of {vec.numel()} elements is invalid for parameters of "
            f"{sum(p.numel() for p in parameter_list)}"
        )
    for p in parameter_list:
        p.data = vec[start : start + p.numel()].view_as(p).data
        start += p.numel()
