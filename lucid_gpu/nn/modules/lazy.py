"""Modules that learn the size of their input from the first one, and then are ordinary ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from lucid_gpu.nn.modules import batchnorm, conv, instancenorm, linear
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import UninitializedBuffer, UninitializedParameter
from lucid_gpu.tape import watched
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

_UNINITIALIZED = (UninitializedParameter, UninitializedBuffer)


class LazyModuleMixin:
    """What makes a module lazy: until its first call some of its tensors have no shape.

    A class derives from it and from `Module` or another module, has `UninitializedParameter` and
    `UninitializedBuffer` for attributes, and defines `initialize_parameters`, which is called with
    the arguments of the first call and gives them shapes.

    Attributes
    ----------
    cls_to_become : type or None
        What the module is after its first call; None for what it was.

    Raises
    ------
    RuntimeError
        From the first call, where a tensor has no shape after `initialize_parameters`.
    """

    cls_to_become: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hook = self.register_forward_pre_hook(_see, with_kwargs=True)  # type: ignore[attr-defined]

    def has_uninitialized_params(self) -> bool:
        """Whether a tensor has no shape yet."""
        own = self.__dict__
        tensors = [*own["_parameters"].values(), *own["_buffers"].values()]
        return any(isinstance(t, _UNINITIALIZED) for t in tensors)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the tensors without a shape theirs, by the arguments of the first call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )


class _OfInput(LazyModuleMixin):
    """A module whose first argument, left out here, is a size of its input."""

    _defaults: Mapping[str, Any] = {}  # which are others than those of the ordinary module
    _settings: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(self.cls_to_become).bind(0, *args, **kwargs)
        for name, value in self._defaults.items():
            bound.arguments.setdefault(name, value)
        bound.apply_defaults()
        with no_grad():
            super().__init__(**bound.arguments)
        self._settings = dict(bound.arguments)
        kinds = ("_parameters", UninitializedParameter), ("_buffers", UninitializedBuffer)
        for table, kind in kinds:
            entries = self.__dict__[table]
            for name, value in entries.items():
                if value is not None and value.ndim:
                    entries[name] = kind(device=value.device, dtype=value.dtype)

    def reset_parameters(self) -> None:
        """Draw the values anew, once there are any."""
        if getattr(self, "_settings", None) and not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the size of the input; tensors that were not loaded get shapes and first values.

        What the call has besides, such as ``output_size`` of transposed convolutions, is left to
        `forward`.
        """
        name, size = next(iter(self._settings)), self._size_of(input)
        setattr(self, name, size)
        if not self.has_uninitialized_params():
            return
        tensors = {**self.__dict__["_parameters"], **self.__dict__["_buffers"]}
        late = {key: t for key, t in tensors.items() if isinstance(t, _UNINITIALIZED)}
        like = next(iter(late.values()))
        settings = {**self._settings, name: size, "device": like.device, "dtype": like.dtype}
        made = self.cls_to_become(**settings)
        with no_grad():
            for key, tensor in late.items():
                first = getattr(made, key)
                tensor.materialize(first.shape)
                tensor.copy_(first)

    def _size_of(self, input: Tensor) -> int:
        raise NotImplementedError


def _see(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the first call: the module becomes an ordinary one."""
    with watched.aside():
        module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {type(module).__name__} has not been fully initialized")
    module._hook.remove()
    del module._hook
    module.__dict__.pop("_settings", None)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


class _OfFeatures(_OfInput):
    def _size_of(self, input: Tensor) -> int:
        return int(input.shape[-1])


class _LazyConvXdMixin(_OfInput):
    _rank: int

    def _size_of(self, input: Tensor) -> int:
        rank = self._rank
        if input.dim() not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        return int(input.shape[-rank - 1])


class _LazyNormBase(_OfInput):
    ranks: tuple[int, ...]

    def _size_of(self, input: Tensor) -> int:
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")
        return int(input.shape[1])


class _OfInstances(_LazyNormBase):
    rank: int
    _defaults = {"affine": True, "track_running_stats": True}

    def _size_of(self, input: Tensor) -> int:
        ranks = self.rank + 1, self.rank + 2
        if input.dim() not in ranks:
            raise ValueError(
                f"expected {ranks[0]}D or {ranks[1]}D input (got {input.dim()}D input)"
            )
        return int(input.shape[-ranks[0]])


_ROWS: tuple[tuple[type[_OfInput], tuple[type[Module], ...]], ...] = (
    (_OfFeatures, (linear.Linear,)),
    (_LazyConvXdMixin, (conv.Conv1d, conv.Conv2d, conv.Conv3d)),
    (_LazyConvXdMixin, (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d)),
    (_LazyNormBase, (batchnorm.BatchNorm1d, batchnorm.BatchNorm2d, batchnorm.BatchNorm3d)),
    (
        _OfInstances,
        (instancenorm.InstanceNorm1d, instancenorm.InstanceNorm2d, instancenorm.InstanceNorm3d),
    ),
)


def _lazy(kind: type[_OfInput], layer: type[Module]) -> type[Module]:
    """A layer without its first argument."""
    asked = inspect.signature(layer)
    first, *rest = asked.parameters.values()
    rest = [p.replace(default=kind._defaults.get(p.name, p.default)) for p in rest]
    about = f"`{layer.__name__}` that takes ``{first.name}`` from its first input."
    space = {
        "cls_to_become": layer,
        "__doc__": about,
        "__module__": __name__,
        "_signature": asked.replace(parameters=rest),
    }
    made = type(f"Lazy{layer.__name__}", (kind, layer), space)
    made.__doc__ = (made.__doc__ or "").replace(f"    {first.name}, ", "    ", 1)
    return made


_CLASSES = [_lazy(kind, layer) for kind, layers in _ROWS for layer in layers]
globals().update({made.__name__: made for made in _CLASSES})

__all__ = [made.__name__ for made in _CLASSES]
