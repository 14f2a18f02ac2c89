"""Parameters some of whose elements are zero: masks, and the methods that choose them.

A pruned module keeps the parameter as ``name_orig`` and the mask as buffer ``name_mask``; a hook
computes ``name``, their product, before each forward.
"""

from __future__ import annotations

import abc
import numbers
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.ops.creation import ones_like
from lucid_gpu.ops.random import rand
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

_M = TypeVar("_M", bound=Module)


class BasePruningMethod(abc.ABC):
    """How a mask is chosen; once applied, the hook that computes the pruned parameter.

    Subclasses give `compute_mask`, and ``PRUNING_TYPE``: what they see of a parameter that was
    pruned before. ``"unstructured"`` methods see the elements that are left, ``"structured"`` ones
    the slices along ``dim`` in which any is left, ``"global"`` ones everything.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for scores ``t``, within ``default_mask``; both of one shape, as the result.

        Raises
        ------
        ValueError
            For more elements or slices than there are, and for slices of a vector.
        IndexError
            For slices along a dimension that there is not.
        AssertionError
            For a given mask of another shape.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter with its mask, shape of the parameter.

        Raises
        ------
        AssertionError
            If the method was not applied.
        """
        name = self._applied(module)
        original: Tensor = getattr(module, f"{name}_orig")
        mask: Tensor = getattr(module, f"{name}_mask")
        return mask.to(original.dtype) * original

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune parameter ``name`` by ``cls(*args, **kwargs)``; after an error nothing is changed.

        Parameters
        ----------
        module : Module
        name : str
        *args, **kwargs
            What the class is called with.
        importance_scores : Tensor, optional
            What the mask is chosen by, of the parameter's shape; else the parameter itself.

        Returns
        -------
        BasePruningMethod
            The hook: where the parameter was pruned before, a `PruningContainer`.

        Raises
        ------
        AssertionError
            For scores of another shape.
        AttributeError
            If there is no such parameter.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        key = _key(module, name)
        if key is None:
            original = getattr(module, name)
            default = None
        else:
            before = module._forward_pre_hooks[key]
            earlier = before if isinstance(before, PruningContainer) else (before,)
            method = PruningContainer(*earlier, method)
            original = getattr(module, f"{name}_orig")
            default = getattr(module, f"{name}_mask").detach().clone()
        scores = _scores(original, importance_scores, f"parameter {name} of {module}")
        mask = method.compute_mask(scores, ones_like(scores) if default is None else default)

        if key is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", original)
        else:
            del module._forward_pre_hooks[key]
        module.register_buffer(f"{name}_mask", mask)
        method(module, None)
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self,
        t: Tensor,
        default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:
        """``t`` with the mask chosen for it; AssertionError for scores of another shape."""
        scores = _scores(t, importance_scores, "tensor t")
        mask = self.compute_mask(scores, ones_like(t) if default_mask is None else default_mask)
        return t * mask

    def remove(self, module: Module) -> None:
        """Make what is left the parameter; the hook stays. AssertionError if not applied."""
        name = self._applied(module)
        original: Any = module._parameters.get(f"{name}_orig")
        weight = self.apply_mask(module)
        for key in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, key)
        original.data = weight.data
        setattr(module, name, original)

    def _applied(self, module: Module) -> str:
        name = getattr(self, "_tensor_name", None)
        if name is None or f"{name}_orig" not in module._parameters:
            raise AssertionError(f"Module {module} has to be pruned before its mask is used")
        return name


class PruningContainer(BasePruningMethod):
    """Methods of one parameter, in the order in which they were applied.

    Parameters
    ----------
    *args : BasePruningMethod
        Else TypeError; ValueError if they are of another parameter than the first.
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """One more, applied last: TypeError, ValueError as the class."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if not hasattr(self, "_tensor_name"):
            self._tensor_name = method._tensor_name
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last method's mask of what ``default_mask`` leaves of ``t``.

        Raises
        ------
        ValueError
            For an unknown ``PRUNING_TYPE``.
        """
        method: Any = self._pruning_methods[-1]
        seen: Any = ...
        if method.PRUNING_TYPE == "unstructured":
            seen = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = _dim(default_mask, method.dim)
            others = [d for d in range(default_mask.ndim) if d != dim]
            seen = (slice(None),) * dim + (default_mask.sum(others) != 0,)
        elif method.PRUNING_TYPE != "global":
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.clone()
        mask[seen] = method.compute_mask(t[seen], mask[seen]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Nothing is pruned; the parameter gets a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Random elements.

    Parameters
    ----------
    amount : int or float
        How many, or which part of all. TypeError for what is no number, ValueError for numbers
        below 0, parts above 1, and, when applied, for more elements than there are.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(default_mask, rand(t.shape, device=t.device), self.amount)


class L1Unstructured(BasePruningMethod):
    """The elements of least magnitude; parameter and errors as in `RandomUnstructured`."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(default_mask, t.detach().abs(), self.amount)


class RandomStructured(BasePruningMethod):
    """Random slices along a dimension.

    Parameters
    ----------
    amount : int or float
        How many slices, or which part of all: TypeError, ValueError as `RandomUnstructured`.
    dim : int
        When applied: IndexError if there is no such dimension, ValueError for vectors.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        dim = _dim(t, self.dim)
        values = rand(t.shape[dim], device=t.device)
        return _without_least(default_mask, values, self.amount, dim)


class LnStructured(BasePruningMethod):
    """The slices along a dimension whose norms are least.

    Parameters
    ----------
    amount : int or float
        How many slices, or which part of all: TypeError, ValueError as `RandomUnstructured`.
    n : float or str
        Which norm, as `norm` takes it.
    dim : int
        When applied: IndexError if there is no such dimension, ValueError for vectors.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        dim = _dim(t, self.dim)
        values = t.detach().norm(self.n, [d for d in range(t.ndim) if d != dim])
        return _without_least(default_mask, values, self.amount, dim)


class CustomFromMask(BasePruningMethod):
    """A mask that is given; AssertionError, when applied, for another shape."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: _M, name: str) -> _M:
    """Give a parameter a mask of ones; returns the module, as all functions here."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: _M, name: str, amount: float) -> _M:
    """Prune random elements: `RandomUnstructured`, with its errors."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: _M, name: str, amount: float, importance_scores: Tensor | None = None
) -> _M:
    """Prune the elements of least magnitude: `L1Unstructured`, with its errors."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: _M, name: str, amount: float, dim: int) -> _M:
    """Prune random slices along a dimension: `RandomStructured`, with its errors."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: _M,
    name: str,
    amount: float,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> _M:
    """Prune the slices of least norm along a dimension: `LnStructured`, with its errors."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: _M, name: str, mask: Tensor) -> _M:
    """Prune by a mask of the parameter's shape: `CustomFromMask`, with its errors."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune elements of several parameters, chosen among all of them together.

    Parameters
    ----------
    parameters : iterable of (Module, str)
    pruning_method : type
        An unstructured one, called with ``kwargs``; else TypeError.
    importance_scores : dict, optional
        What the masks are chosen by, keyed as ``parameters`` are; else the parameters themselves.
        AssertionError for scores of another shape.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is None:
        importance_scores = {}
    elif not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    pairs = list(parameters)
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [
        _scores(t, importance_scores.get(pair), f"parameter {pair[1]} of {pair[0]}")
        for pair, t in zip(pairs, tensors)
    ]
    masks = [getattr(m, f"{name}_mask", ones_like(t)) for (m, name), t in zip(pairs, tensors)]
    method._tensor_name = "all"
    together = PruningContainer(method).compute_mask(
        cat([s.reshape(-1) for s in scores]), cat([m.reshape(-1) for m in masks])
    )
    for (module, name), t, mask in zip(
        pairs, tensors, together.split([t.numel() for t in tensors])
    ):
        custom_from_mask(module, name, mask.reshape(t.shape))


def remove(module: _M, name: str) -> _M:
    """Make what is left of a pruned parameter the parameter; ValueError if it is not pruned."""
    key = _key(module, name)
    if key is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    module._forward_pre_hooks[key].remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether any parameter of the module, or of one inside it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for each in module.modules()
        for hook in each._forward_pre_hooks.values()
    )


def _key(module: Module, name: str) -> int | None:
    """The key of the hook that computes a pruned parameter."""
    for key, method in module._forward_pre_hooks.items():
        if isinstance(method, BasePruningMethod) and method._tensor_name == name:
            return key
    return None


def _scores(t: Tensor, scores: Tensor | None, owner: str) -> Tensor:
    if scores is None:
        return t
    if scores.shape != t.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {owner}, got {scores.shape} vs "
            f"{t.shape}"
        )
    return scores


def _is_count(amount: Any) -> bool:
    return isinstance(amount, numbers.Integral)


def _validate_pruning_amount_init(amount: Any) -> None:
    """Refuse what is neither a number of elements nor a part of all."""
    if not issubclass(type(amount), numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (amount > 1 and not _is_count(amount)):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """Refuse more elements than there are."""
    if _is_count(amount) and amount > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many elements an amount is: itself, or a part of all."""
    return int(amount) if _is_count(amount) else round(amount * tensor_size)


def _dim(t: Tensor, dim: int) -> int:
    """A dimension whose slices can be pruned, counted from the front."""
    if t.ndim < 2:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {t.shape} with {t.ndim} dims"
        )
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    return dim % t.ndim


def _without_least(mask: Tensor, values: Tensor, amount: Any, dim: int | None = None) -> Tensor:
    """The mask with zeros at the least of its elements, or of its slices along ``dim``."""
    size = values.numel()
    _validate_pruning_amount(amount, size)
    count = _compute_nparams_toprune(amount, size)
    least = values.reshape(-1).topk(count, largest=False).indices
    mask = mask.clone()
    if dim is None:
        mask.view(-1)[least] = 0
    else:
        mask[(slice(None),) * dim + (least,)] = 0
    return mask
