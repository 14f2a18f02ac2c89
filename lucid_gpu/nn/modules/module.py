"""The base class of everything that holds parameters."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from lucid_gpu.autograd.swapping import swap_tensors
from lucid_gpu.core.node import RemovableHandle
from lucid_gpu.nn.modules.conversion import Conversion
from lucid_gpu.nn.modules.hooks import *  # noqa: F403  PyTorch has them here
from lucid_gpu.nn.modules.hooks import (
    EVERYWHERE,
    Everywhere,
    LoadHook,
    Table,
    called,
    read_as,
    register,
    register_backward,
    registered,
)
from lucid_gpu.nn.modules.state import IncompatibleKeys, load, load_own
from lucid_gpu.nn.parameter import Buffer, Parameter, forget_gradients
from lucid_gpu.ops.creation import empty_like
from lucid_gpu.ops.elementwise import read_to
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Module"]

_M = TypeVar("_M", bound="Module")


_LOCATED = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    NotImplementedError,
    AssertionError,
)
_TABLES = ("_parameters", "_modules", "_buffers")
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


_IncompatibleKeys = IncompatibleKeys  # the names that packages import
_global_buffer_registration_hooks = Everywhere("buffer")
_global_module_registration_hooks = Everywhere("module")
_global_parameter_registration_hooks = Everywhere("parameter")
_global_forward_hooks = Everywhere("forward")
_global_forward_pre_hooks = Everywhere("forward_pre")
_global_backward_pre_hooks = Everywhere("backward_pre")


class Module:
    """A function with parameters.

    Subclasses call ``super().__init__()``, assign `Parameter`, `Module` and buffer attributes, and
    define ``forward``. Assigned attributes are registered under their names, so that `parameters`,
    `state_dict`, `to` and the rest find them.

    Attributes
    ----------
    training : bool
        True after `train`, False after `eval`.

    Raises
    ------
    TypeError
        For arguments, unless the class sets ``call_super_init``, which hands them on.
    """

    training: bool
    if TYPE_CHECKING:  # get_type_hints(a loss) looks the names up in the caller's module
        _parameters: dict[str, Parameter | None]
        _buffers: dict[str, Tensor | None]
        _modules: dict[str, Module | None]
        _non_persistent_buffers_set: set[str]
        _forward_hooks: Table
        _forward_hooks_with_kwargs: Table  # of which hooks: their numbers
        _forward_hooks_always_called: Table
        _forward_pre_hooks: Table
        _forward_pre_hooks_with_kwargs: Table
        _backward_hooks: Table
        _backward_pre_hooks: Table
        _state_dict_hooks: Table
        _state_dict_pre_hooks: Table
        _load_state_dict_pre_hooks: Table
        _load_state_dict_post_hooks: Table
    _version = 1  # of what `state_dict` gives, kept with it

    _is_full_backward_hook: bool | None = None  # of `_backward_hooks`, all of one kind
    call_super_init = False  # whether `__init__` hands its arguments on, for mixins behind Module

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            why = f"takes 1 positional argument but {len(args) + 1} were given"
            if kwargs:
                why = f"got an unexpected keyword argument '{next(iter(kwargs))}'"
            raise TypeError(f"{type(self).__name__}.__init__() {why}")
        put = object.__setattr__  # past our own __setattr__, which looks in these
        put(self, "training", True)
        put(self, "_parameters", {})
        put(self, "_buffers", {})
        put(self, "_modules", {})
        put(self, "_non_persistent_buffers_set", set())
        for table in _HOOKS:
            put(self, table, OrderedDict())
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling ----------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; for subclasses.

        Raises
        ------
        NotImplementedError
            In a subclass that does not define it.
        """
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if (
                self._forward_pre_hooks
                or self._forward_hooks
                or self._backward_hooks
                or self._backward_pre_hooks
                or EVERYWHERE
            ):
                return called(self, args, kwargs)
            return self.forward(*args, **kwargs)
        except _LOCATED as error:
            _say_where(error, self)
            raise
        except AttributeError as error:
            _refuse_what_is_no_tensor(error, self, args)
            raise

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before every forward; what it returns replaces ``args``.

        With ``with_kwargs`` it is ``hook(module, args, kwargs)`` and returns both or None.
        """
        marks = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return register(self._forward_pre_hooks, hook, prepend, marks)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after every forward; what it returns replaces output.

        With ``with_kwargs`` it is ``hook(module, args, kwargs, output)``; with ``always_call`` it
        also runs, with output None, when forward raises.
        """
        marks = [self._forward_hooks_with_kwargs] if with_kwargs else []
        marks += [self._forward_hooks_always_called] if always_call else []
        return register(self._forward_hooks, hook, prepend, marks)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when a gradient arrives; its answer replaces that."""
        return register(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when a gradient has passed the module.

        What it returns replaces ``grad_input``, a tuple with one gradient for each positional
        argument (None for anything but a tensor).
        """
        return register_backward(self, hook, True, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` for the last node of forward.

        Deprecated, as in PyTorch: of a forward of several ops, ``grad_input`` is that of the last.
        What is returned may be written in place, which full hooks forbid.
        """
        return register_backward(self, hook, False)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict` is made."""
        return register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after `state_dict` is made.

        It may change the dictionary in place.
        """
        function: Any = getattr(hook, "__func__", hook)  # methods take no attributes themselves
        function._from_public_api = True
        return register(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`; what the hook returns replaces the dictionary."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered via register_state_dict_post_hook"
            )
        return register(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before this module's part of a state dict is loaded.

        It is ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` and may change the dictionary.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        kept = LoadHook(hook, self if with_module else None)
        return register(self._load_state_dict_pre_hooks, kept)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the lists."""
        return register(self._load_state_dict_post_hooks, hook)

    # -- registering ------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under ``name``; None reserves the name.

        Raises
        ------
        TypeError, ValueError
            For anything but a `Parameter`, and for a parameter that was computed from others.
        KeyError
            For a name that is empty, taken, or has a dot.
        """
        self._check_name(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly. To express parameters as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        if EVERYWHERE and param is not None:
            param = registered(self, "parameter", name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves with the module and, if ``persistent``, is in `state_dict`.

        Parameters
        ----------
        name : str
        tensor : Tensor, any shape, or None
            None reserves the name.
        persistent : bool

        Raises
        ------
        TypeError
            For anything but a tensor.
        KeyError
            For a name that is empty, taken, or has a dot.
        """
        self._check_name(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        self._buffers[name] = registered(self, "buffer", name, tensor) if EVERYWHERE else tensor
        fleeting = self._non_persistent_buffers_set
        (fleeting.discard if persistent else fleeting.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child under ``name``; None reserves the name.

        Raises
        ------
        TypeError
            For anything but a module.
        KeyError
            For a name that is empty, taken, or has a dot.
        """
        if module is not None and not isinstance(module, Module):
            kinds = [kind.__module__.partition(".")[0] for kind in type(module).__mro__]
            other = "; it is PyTorch's (einops' layers: lucid_gpu.nn.einops)" * ("torch" in kinds)
            raise TypeError(f"{type(module).__name__} is not a Module subclass{other}")
        self._check_name(name, "module")
        self._modules[name] = registered(self, "module", name, module) if EVERYWHERE else module

    register_module = add_module

    def _check_name(self, name: str, kind: str) -> None:
        table = self.__dict__.get(f"_{kind}s")
        if table is None:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def _tables(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        own = self.__dict__
        return own.get("_parameters", {}), own.get("_modules", {}), own.get("_buffers", {})

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for kind in _TABLES:
            if kind in own and name in (table := own[kind]):
                return read_as(self, name, table[name]) if EVERYWHERE else table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        parameters, modules, buffers = self._tables()
        if isinstance(value, Parameter):
            self._forget(name, parameters)
            self.register_parameter(name, value)
        elif name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            parameters[name] = None
        elif isinstance(value, Module):
            if "_modules" not in self.__dict__:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, modules)
            modules[name] = registered(self, "module", name, value) if EVERYWHERE else value
        elif name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            modules[name] = None
        elif name in buffers:
            self.register_buffer(
                name, value, persistent=name not in self._non_persistent_buffers_set
            )
        elif isinstance(value, Buffer):
            self.__dict__.pop(name, None)
            self.register_buffer(name, value, value.persistent)
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, kept: dict[str, Any]) -> None:
        """Let a parameter or module take the name of what is in another table."""
        for table in (self.__dict__, *self._tables()):
            if table is not kept:
                table.pop(name, None)

    def __delattr__(self, name: str) -> None:
        for table in self._tables():
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *itertools.chain(*self._tables())}
        return sorted(name for name in names if name.isidentifier())

    # -- looking through --------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, each with its dotted name, parents first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        paths = [(prefix, iter(self._modules.items()))]  # from here down to where the walk is
        while paths:
            path, children = paths[-1]
            for name, child in children:
                if child is None or child in memo:
                    continue
                below = f"{path}.{name}" if path else name
                if type(child).named_modules is not Module.named_modules:
                    yield from child.named_modules(memo, below, remove_duplicate)
                    continue
                if remove_duplicate:
                    memo.add(child)
                yield below, child
                paths.append((below, iter(child._modules.items())))
                break
            else:
                paths.pop()

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in getattr(module, table).items():
                key = id(value)
                if value is None or key in seen:
                    continue
                if remove_duplicate:
                    seen.add(key)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters, each with its dotted name, once unless ``remove_duplicate=False``."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        if not recurse or type(self).named_parameters is not Module.named_parameters:
            return (value for _, value in self.named_parameters(recurse=recurse))
        every = [
            parameter
            for module in self._all_modules()
            for parameter in module._parameters.values()
            if parameter is not None
        ]
        return iter(dict(zip(map(id, every), every)).values())

    def _all_modules(self) -> Iterable[Module]:
        """What `modules` gives, at once."""
        found: dict[Module, None] = {}
        waiting: list[Module | None] = [self]
        while waiting:
            module = waiting.pop()
            if module is None or module in found:
                continue
            if type(module).named_modules is not Module.named_modules:
                return self.modules()
            found[module] = None
            waiting += [*module._modules.values()][::-1]
        return found

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, tensors of any shape, each with its dotted name; as `named_parameters`."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, tensors of any shape, each once."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once, or with False as often as it stands there."""
        named = self.named_modules(remove_duplicate=remove_duplicate)
        return (module for _, module in named)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names, each once."""
        seen: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        return (child for _, child in self.named_children())

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name, ``""`` for this one; AttributeError if there is none."""
        module: Module = self
        for name in target.split(".") if target else ():
            child = getattr(module, name, None)
            if child is None:
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            if not isinstance(child, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
            module = child
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with a dotted name; AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        parameter = owner._parameters.get(name)
        if parameter is None and hasattr(owner, name):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        if parameter is None:
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name, of any shape; AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        buffer = owner._buffers.get(name)
        if buffer is None:
            if hasattr(owner, name):
                raise AttributeError(f"`{name}` is not a buffer")
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        return buffer

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted name; with ``strict`` only where there is one already.

        Raises
        ------
        ValueError
            For an empty name, and anything but a module.
        AttributeError
            If there is nothing to put it in, something else stands, or with ``strict`` nothing.
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict and not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        if hasattr(owner, name) and not isinstance(getattr(owner, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    # -- changing all at once ---------------------------------------------------------------

    def apply(self: _M, fn: Callable[[Module], None]) -> _M:
        """Call ``fn`` on every module below and on this one, children first."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: _M, mode: bool = True) -> _M:
        """Set `training` here and below; ValueError for anything but a bool."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self: _M) -> _M:
        """The same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: _M, requires_grad: bool = True) -> _M:
        """Set every parameter's ``requires_grad``."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def share_memory(self: _M) -> _M:
        """Move all parameters and buffers into memory that other processes see, too."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient, or with ``set_to_none=False`` fill it with zeros."""
        forget_gradients(self.parameters(), set_to_none)

    def _apply(self: _M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _M:
        if recurse:
            for module in self.children():
                module._apply(fn)  # of its own class, which may hold more than this one does
        with no_grad():
            for name, parameter in self._parameters.items():
                if parameter is None:
                    continue
                if Conversion.swap:
                    _swap(parameter, fn, f"{type(self).__name__}.{name}")
                else:
                    self._parameters[name] = _converted(parameter, fn)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self: _M, *args: Any, **kwargs: Any) -> _M:
        """Move and cast parameters and buffers in place: ``to(device, dtype)``, ``to(tensor)``.

        A dtype is given to those tensors alone that are floating point or complex, a
        ``memory_format`` to those of four or five dimensions.

        Raises
        ------
        NotImplementedError
            From the device meta, where there are no elements to move; see `to_empty`.
        TypeError
            For a dtype of integers, and arguments that are none of these.
        RuntimeError
            For ``copy``: a module is changed in place.
        """
        device, dtype, non_blocking, copy, order = read_to(args, kwargs)
        if copy:
            raise RuntimeError(
                ".to() does not accept copy argument: copy.deepcopy(module) copies one"
            )
        if dtype is not None and dtype.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may "
                "change, and some modules might not work as expected when using complex tensors "
                "as parameters or buffers.",
                stacklevel=2,
            )
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )

        def convert(t: Tensor) -> Tensor:
            own = dtype if t.is_floating_point() or t.is_complex() else None
            kept = {} if order is None or t.ndim not in (4, 5) else {"memory_format": order}
            to = t.device if device is None else device
            if t.device.type == "meta" != to.type:
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use "
                    "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module "
                    "from meta to a different device."
                )
            return t.to(to, t.dtype if own is None else own, non_blocking, **kept)

        return self._apply(convert)

    def cpu(self: _M) -> _M:
        """Move to the CPU."""
        return self.to("cpu")

    def cuda(self: _M, device: Any = None) -> _M:
        """Move to a GPU."""
        return self.to("cuda" if device is None else device)

    def _to_float(self: _M, name: str) -> _M:
        return self._apply(lambda t: getattr(t, name)() if t.is_floating_point() else t)

    def float(self: _M) -> _M:
        """Cast floating point parameters and buffers to float32."""
        return self._to_float("float")

    def double(self: _M) -> _M:
        """Cast floating point parameters and buffers to float64."""
        return self._to_float("double")

    def half(self: _M) -> _M:
        """Cast floating point parameters and buffers to float16."""
        return self._to_float("half")

    def bfloat16(self: _M) -> _M:
        """Cast floating point parameters and buffers to bfloat16."""
        return self._to_float("bfloat16")

    def type(self: _M, dst_type: Any) -> _M:
        """Cast every parameter and buffer."""
        return self._apply(lambda t: t.to(dst_type))

    def to_empty(self: _M, *, device: Any, recurse: bool = True) -> _M:
        """Move to a device without the values."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def _replicate_for_data_parallel(self: _M) -> _M:
        """A module beside this one with tables of its own, for one device's copies."""
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica.__dict__["_parameters"] = {}
        replica.__dict__["_buffers"] = self._buffers.copy()
        replica.__dict__["_modules"] = self._modules.copy()
        replica.__dict__["_is_replica"] = True
        return replica

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Accepted for compatibility: what is elementwise is fused without."""

    # -- state ------------------------------------------------------------------------------

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name.

        The tensors share memory with the module's; they are detached unless ``keep_vars``.

        Parameters
        ----------
        destination : dict, optional
            What they are put into.
        prefix : str
            Before each name.
        keep_vars : bool

        Raises
        ------
        RuntimeError
            If a hook that is to change the dictionary returns another.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to https://pytorch"
                ".org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for "
                "details.",
                FutureWarning,
                stacklevel=2,
            )
            positional = [destination, prefix, keep_vars]
            positional[: len(args)] = args
            destination, prefix, keep_vars = positional  # type: ignore[assignment]
        state: Any = OrderedDict() if destination is None else destination
        if destination is None:
            state._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(state, "_metadata"):
            state._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(state, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, state, prefix, local)
            if changed is not None and getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            state = state if changed is None else changed
        entries: dict[str, Any] = state
        return entries

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put this module's own entries, not its children's, into ``destination``."""
        for key, value in self._own_state():
            destination[prefix + key] = value if keep_vars else value.detach()
        if self._has_own("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _own_state(self) -> list[tuple[str, Any]]:
        fleeting = self._non_persistent_buffers_set
        kept = [(k, b) for k, b in self._buffers.items() if k not in fleeting]
        return [(k, v) for k, v in [*self._parameters.items(), *kept] if v is not None]

    def _has_own(self, name: str) -> bool:
        """Whether a subclass overrides a method of `Module`."""
        return getattr(type(self), name) is not getattr(Module, name)

    def get_extra_state(self) -> Any:
        """What else `state_dict` is to hold, in a subclass; RuntimeError in others."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave, in a subclass; RuntimeError in others."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy parameters and buffers from a `state_dict`.

        Parameters
        ----------
        state_dict : mapping of str to Tensor
        strict : bool
            Whether missing and unexpected keys are errors.
        assign : bool
            Take the tensors themselves in place of copying their values.

        Returns
        -------
        named tuple
            ``missing_keys`` and ``unexpected_keys``.

        Raises
        ------
        RuntimeError
            Naming every missing, unexpected or misshapen entry. Nothing but extra states (which
            may make children) has been loaded then.
        """
        incompatible: IncompatibleKeys = load(self, state_dict, strict, assign)
        return incompatible

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries, not its children's; for subclasses to extend."""
        load_own(
            self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
            error_msgs,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOKS:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    # -- showing ----------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of the repr; for subclasses."""
        return ""

    def _child_lines(self) -> list[str]:
        return [f"({name}): {_addindent(repr(child), 2)}" for name, child in self._modules.items()]

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [*(extra.split("\n") if extra else []), *self._child_lines()]
        if not self._modules and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "".join(f"\n  {line}" for line in lines)
        return f"{self._get_name()}({body}\n)"

    def _get_name(self) -> str:
        """What `repr` calls it: the name of its class, unless a subclass says otherwise."""
        return type(self).__name__

    def _repr_html_(self) -> str:
        from lucid_gpu.viz.notebook import module_html

        return module_html(self)


def _type_name(value: Any) -> str:
    """PyTorch's name of a tensor's type, or a class's."""
    return str(value.type()) if isinstance(value, Tensor) else type_name(value)


def _addindent(s_: str, numSpaces: int) -> str:
    """All lines but the first moved to the right, for packages that write a module's lines."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _say_where(error: Exception, module: Module) -> None:
    """Add to an error which layer of this package it comes from: the innermost one says so."""
    if getattr(error, "_located", False) or type(error) not in _LOCATED:
        return
    error._located = True  # type: ignore[attr-defined]
    kind = type(module)
    if kind.__module__.startswith("lucid_gpu.nn.") and len(error.args) == 1:
        text, whole = error.args[0], not module._modules
        if isinstance(text, str) and kind.__name__ not in text:
            error.args = (f"{text} [in {repr(module) if whole else kind.__name__}]",)


def _refuse_what_is_no_tensor(error: AttributeError, module: Module, args: tuple[Any, ...]) -> None:
    """A layer of this package that was given a list or an array says so in PyTorch's words."""
    kind, lacking = type(module), type(error.obj)
    if kind.__module__.startswith("lucid_gpu.nn.") and not kind.__module__.endswith(".container"):
        for position, argument in enumerate(args, 1):
            if type(argument) is lacking and not isinstance(argument, Tensor):
                wrong = TypeError(
                    f"{kind.__name__}(): argument {position} must be Tensor, not "
                    f"{type(argument).__name__}: lucid_gpu.tensor(...) makes one"
                )
                _say_where(wrong, module)
                raise wrong from None


def _converted(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """A parameter and its gradient after a conversion: the same objects, where they can be."""
    grad, value = parameter.grad, fn(parameter)
    if value is not parameter:
        if _takes(parameter, value):
            parameter.grad = None  # of the old type; it is given back below
            parameter.data = value
        else:
            parameter = Parameter(value, parameter.requires_grad)
    if grad is not None:
        converted = fn(grad)
        if converted is not grad and _takes(grad, converted):
            grad.data = converted
        elif converted is not grad:
            grad = converted.requires_grad_(grad.requires_grad)
        parameter.grad = grad
    return parameter


def _takes(tensor: Tensor, value: Tensor) -> bool:
    """Whether a conversion changes a tensor, and does not put another in its place."""
    return not (Conversion.overwrite or tensor._is_sparse or value._is_sparse)


def _swap(parameter: Parameter, fn: Callable[[Tensor], Tensor], name: str) -> None:
    """Convert a parameter, and its gradient, by exchange with the converted ones."""
    grad, parameter.grad = parameter.grad, None
    try:
        swap_tensors(parameter, Parameter(fn(parameter), parameter.requires_grad))
    except Exception as error:
        parameter.grad = grad
        raise RuntimeError(f"_apply(): Couldn't swap {name}") from error
    if grad is not None:
        try:
            swap_tensors(grad, fn(grad).requires_grad_(grad.requires_grad))
        except Exception as error:
            raise RuntimeError(f"_apply(): Couldn't swap {name}.grad") from error
        parameter.grad = grad


_forward_unimplemented = Module.forward


def _has_any_global_hook() -> bool:
    """Whether a hook holds for all modules."""
    return bool(EVERYWHERE)
