"""Parameters that are computed from others each time they are read.

A parametrized module gets a class of its own, a subclass of its class with a property where the
parameter was; what the property is computed from is in ``module.parametrizations``.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu.nn.modules.container import ModuleDict, ModuleList
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache: dict[tuple[int, str], Tensor] | None = None


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Inside, what is parametrized is computed once."""
    global _cache
    outer, _cache = _cache, {} if _cache is None else _cache
    try:
        yield
    finally:
        _cache = outer


class ParametrizationList(ModuleList):
    """The functions that make a tensor, first to last, and what they make it from.

    Attributes
    ----------
    original, or original0, original1, ... : Parameter or buffer, any shape

    Raises
    ------
    ValueError
        For no functions, and an inverse that is not a tensor of the same type or several tensors.
    """

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        if not len(self):
            raise ValueError("ParametrizationList requires one or more modules.")
        self.unsafe = unsafe
        value: Any = original
        with no_grad():
            for function in reversed(list(self)):
                if hasattr(function, "right_inverse"):
                    # one that has no inverse counts as its own, as one without the method does
                    with contextlib.suppress(NotImplementedError):
                        value = function.right_inverse(value)
        _check_originals(value, original)
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if self.is_tensor:
            value = [_holding(original, value)]  # optimizers that have it keep it
        for name, t in zip(self._names(), value, strict=True):
            if not isinstance(original, Parameter):
                self.register_buffer(name, t)
            elif t is original:
                self.register_parameter(name, t)
            else:
                self.register_parameter(name, Parameter(t, original.requires_grad))

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that ``value``, of the computed tensor's shape, is made of them.

        Raises
        ------
        RuntimeError
            For a function without ``right_inverse``.
        ValueError
            If the inverse is not as many tensors, of the types, as there are originals.
        """
        originals: Any = value
        with no_grad():
            for function in reversed(list(self)):
                if not hasattr(function, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(function).__name__} does not implement "
                        "right_inverse."
                    )
                originals = function.right_inverse(originals)
            _check_new_originals(originals, self)
            for name, t in zip(
                self._names(), [originals] if self.is_tensor else originals, strict=True
            ):
                getattr(self, name).copy_(t)

    def forward(self) -> Tensor:
        """The tensor, of any shape, that the functions make of the originals."""
        first, *rest = self
        result: Tensor = first(*[getattr(self, name) for name in self._names()])
        for function in rest:
            result = function(result)
        return result


def _check_originals(value: Any, original: Tensor) -> None:
    """Refuse what no tensor can be computed from."""
    if isinstance(value, Tensor):
        if value.dtype is not original.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {value.dtype}"
            )
        return
    if not isinstance(value, Sequence):
        raise ValueError(
            "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
            f"Got {type(value).__name__}"
        )
    for i, t in enumerate(value):
        if not isinstance(t, Tensor):
            raise ValueError(
                "When `right_inverse` outputs a Sequence of tensors, all of them must be tensors. "
                f"Got element {i} of the sequence with type {type(t).__name__}."
            )


def _check_new_originals(value: Any, held: ParametrizationList) -> None:
    """Refuse what cannot take the place of the tensors that are there."""
    if held.is_tensor:
        if not isinstance(value, Tensor):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
    elif not isinstance(value, Sequence):
        raise ValueError(
            f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}."
        )
    elif len(value) != held.ntensors:
        raise ValueError(
            "'right_inverse' must return a sequence of tensors of length "
            f"{held.ntensors}. Got a sequence of length {len(value)}."
        )
    names = held._names()
    for name, t in zip(names, [value] if held.is_tensor else value, strict=True):
        original = getattr(held, name)
        if not isinstance(t, Tensor):
            raise ValueError(
                f"`right_inverse` must return a sequence of tensors. Got {type(t).__name__} for "
                f"{name}"
            )
        if original.dtype is not t.dtype:
            raise ValueError(
                f"The tensor returned by `right_inverse` has dtype {t.dtype} while `{name}` has "
                f"dtype {original.dtype}"
            )


def _holding(original: Tensor, value: Tensor) -> Tensor:
    """The tensor itself, with another's value."""
    if value is not original:
        original.data = value
    return original


def _property(name: str) -> property:
    def read(module: Any) -> Tensor:
        if _cache is None:
            computed: Tensor = module.parametrizations[name]()
            return computed
        key = id(module), name
        if key not in _cache:
            _cache[key] = module.parametrizations[name]()
        return _cache[key]

    return property(read, lambda module, value: module.parametrizations[name].right_inverse(value))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a parameter or buffer be computed: ``parametrization(original)`` each time it is read.

    Parameters
    ----------
    module : Module
    tensor_name : str
    parametrization : Module
        If it has a ``right_inverse``, that is asked for the original of the present value.
    unsafe : bool
        Do not look whether shape and type stay.

    Raises
    ------
    ValueError
        If there is no such tensor, or not ``unsafe`` its shape or dtype would change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held: Any = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        if not unsafe:
            after = parametrization(before)
            _check(before, after)
            _check_inverse(parametrization, tensor_name, before, after)
        held.append(parametrization)
        held.unsafe |= unsafe
        return module
    original = module._parameters.get(tensor_name, module._buffers.get(tensor_name))
    if original is None:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    before = original.detach()
    held = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        try:
            _check(before, held())
        except BaseException:
            original.data = before  # the list gave it the inverse's value
            raise
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        body: dict[str, Any] = {"__getstate__": _unpicklable}
        if not hasattr(kind, "__deepcopy__"):
            body["__deepcopy__"] = _copied
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), body)
        module.parametrizations = ModuleDict()
    module.parametrizations._modules[tensor_name] = held
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def _unpicklable(module: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): their class "
        "exists in this process only. Save module.state_dict(), and load it into a module that was "
        "parametrized in the same way"
    )


def _copied(module: Any, memo: dict[int, Any]) -> Any:
    made: Any = object.__new__(type(module))
    memo[id(module)] = made
    made.__dict__.update(copy.deepcopy(module.__dict__, memo))
    return made


def _check_inverse(parametrization: Any, name: str, before: Tensor, after: Any) -> None:
    """Refuse a further function whose inverse is not one."""
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        if getattr(back, what) != getattr(before, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name} unless the `unsafe` flag is enabled.\nmodule.{name} has {what} "
                f"{getattr(before, what)}, returned {what}: {getattr(back, what)}"
            )


def _check(before: Tensor, after: Any) -> None:
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    if after.dtype is not before.dtype:
        raise ValueError(
            "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` "
            f"flag is enabled.\nunparametrized dtype: {before.dtype}\nparametrized dtype: "
            f"{after.dtype}"
        )
    if after.shape != before.shape:
        raise ValueError(
            "Registering a parametrization may not change the shape of the tensor, unless `unsafe` "
            f"flag is enabled.\nunparametrized shape: {before.shape}\nparametrized shape: "
            f"{after.shape}"
        )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module, or one of its tensors, is computed."""
    held = module._modules.get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return tensor_name in held if tensor_name is not None else len(held) > 0


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a computed tensor a parameter again: of its present value, or its original.

    Parameters
    ----------
    module : Module
    tensor_name : str
    leave_parametrized : bool
        Whether it keeps its present value.

    Raises
    ------
    ValueError
        If the tensor is not computed, and for one original of several.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held: Any = module.parametrizations[tensor_name]
    if not leave_parametrized and not held.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    kept: Any = getattr(held, held._names()[0])
    if leave_parametrized:
        value = getattr(module, tensor_name).detach()
        if held.is_tensor:
            _holding(kept, value)
        else:
            kept = Parameter(value, kept.requires_grad) if isinstance(kept, Parameter) else value
    delattr(type(module), tensor_name)
    del module.parametrizations._modules[tensor_name]
    if isinstance(kept, Parameter):
        module.register_parameter(tensor_name, kept)
    else:
        module.register_buffer(tensor_name, kept)
    if not len(module.parametrizations):
        del module._modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give another module what a module's tensors are computed by, and what from.

    Parameters
    ----------
    from_module, to_module : Module
        The first is left as it is.
    tensor_name : str, optional
        One tensor; else all that are computed.

    Returns
    -------
    Module
        ``to_module``.
    """
    computed = from_module._modules.get("parametrizations")
    if not isinstance(computed, ModuleDict):
        return to_module
    for name in [tensor_name] if tensor_name is not None else list(computed):
        held: Any = computed[name]
        if not hasattr(to_module, name):
            value = getattr(from_module, name).detach().clone()
            if isinstance(getattr(held, held._names()[0]), Parameter):
                to_module.register_parameter(name, Parameter(value))
            else:
                to_module.register_buffer(name, value)
        for function in held:
            register_parametrization(to_module, name, function)
        targets: Any = to_module.parametrizations
        for original in held._names():
            setattr(targets[name], original, getattr(held, original))
    return to_module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before any of its tensors was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
