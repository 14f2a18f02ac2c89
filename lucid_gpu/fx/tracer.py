"""Tracing: a function is called with proxies, and what it does with them becomes a graph."""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import lucid_gpu
from lucid_gpu.func import trees
from lucid_gpu.fx._compatibility import compatibility
from lucid_gpu.fx.codegen import PyTreeCodeGen, PyTreeInfo
from lucid_gpu.fx.graph import Graph
from lucid_gpu.fx.node import Argument, base_types
from lucid_gpu.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from lucid_gpu.fx.wrapping import WRAPPED, Patcher, wrap
from lucid_gpu.nn import Module, Parameter, Sequential
from lucid_gpu.nn.modules import hooks
from lucid_gpu.tape.overrides import METHODS
from lucid_gpu.tensor import Tensor

__all__ = [
    "PH",
    "PHBase",
    "PHWithMeta",
    "ProxyableClassMeta",
    "Tracer",
    "compatibility",
    "is_fx_tracing",
    "wrap",
]

_Patcher = Patcher
_LEAVES = ("lucid_gpu.nn", "lucid_gpu.ao.nn")
_active = threading.local()
_proxyable_classes: dict[type, None] = {}


def is_fx_tracing() -> bool:
    """Whether this thread traces a function at this moment."""
    return getattr(_active, "tracing", False)


is_fx_symbolic_tracing = is_fx_tracing


@contextmanager
def _as_tracing() -> Iterator[None]:
    before, _active.tracing = is_fx_tracing(), True
    try:
        yield
    finally:
        _active.tracing = before


class PHBase:
    """In ``concrete_args``: an argument that is a proxy all the same."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """Such an argument, whose attributes the node of its proxy gets."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


class ProxyableClassMeta(type):
    """A metaclass: making an instance of a proxy becomes a node."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxies = [leaf for leaf in trees.leaves_of((args, kwargs)) if isinstance(leaf, Proxy)]
        if proxies:
            return proxies[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _assert_is_none(value: object, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


# --- functions that are recorded as one step ------------------------------------------------------


def _create_wrapped_func(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but a call with a proxy adds a node."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for leaf in trees.leaves_of((args, kwargs)):
            if isinstance(leaf, Proxy):
                called = leaf.tracer.create_proxy("call_function", original, args, kwargs)
                called.node.meta["is_wrapped"] = True
                return called
        return original(*args, **kwargs)

    return wrapped


def _patch_wrapped_functions(patcher: Patcher) -> None:
    """Exchange the functions that `wrap` was asked for."""
    for names, name in list(WRAPPED):
        original = names[name] if name in names else getattr(builtins, name)
        patcher.patch(names, name, _create_wrapped_func(original))


def _autowrap_check(patcher: Patcher, frame_dict: dict[str, Any], functions: set[Any]) -> None:
    """Exchange those functions of a tracer's that a module has as globals."""
    if not patcher.visit_once(frame_dict):
        return
    for name, value in list(frame_dict.items()):
        wanted = name[:1] != "_" and callable(value) and isinstance(value, Hashable)
        if wanted and value in functions:
            patcher.patch(frame_dict, name, _create_wrapped_func(value))


def _orig_module_call(module: Module, *args: Any, **kwargs: Any) -> Any:
    """What a call of a module does while nobody traces it."""
    return hooks.ran(module, args, kwargs)


def _orig_module_getattr(module: Module, attr: str) -> Any:
    """What an attribute of a module is while nobody traces it."""
    for table in (module._parameters, module._modules, module._buffers):
        if attr in table:
            return table[attr]
    raise AttributeError(f"'{type(module).__name__}' object has no attribute '{attr}'")


# --- the tracer -----------------------------------------------------------------------------------


class Tracer(TracerBase):
    """Traces modules and functions into graphs.

    Parameters
    ----------
    autowrap_modules : tuple of module
        Modules whose functions are recorded as one step, such as `math`.
    autowrap_functions : tuple of callable
        Functions that are.
    param_shapes_constant : bool
        Whether the shape of a parameter is a value, and no proxy.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        named = [item for module in autowrap_modules for item in vars(module).items()]
        public = [v for n, v in named if n[:1] != "_" and callable(v) and isinstance(v, Hashable)]
        self._autowrap_function_ids: set[Any] = {*public, *autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name with this start that the root has no attribute of."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_arg(self, a: Any) -> Argument:
        """The argument of a node for a value: parameters and tensors are read from the root.

        Raises
        ------
        NameError
            For a parameter of no module below the root.
        """
        held: Iterable[tuple[str, Any]] = ()
        if isinstance(a, Parameter):
            held = self.root.named_parameters()
        elif isinstance(a, Tensor):
            held = self.root.named_buffers()
        elif isinstance(a, Module):
            held = self.root.named_modules()
        for name, value in held:
            if value is a:
                return self.create_node("get_attr", name, (), {})
        if isinstance(a, Parameter):
            raise NameError("parameter is not a member of this module")
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            parts = tuple(self.create_arg(part) for part in a)
            return self.create_node("call_function", type(a), parts, {})
        if isinstance(a, Tensor):
            return self.create_node("get_attr", self._constant(a), (), {})
        if type(a) in _proxyable_classes:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _constant(self, tensor: Tensor) -> str:
        """Where the root has a tensor that is no parameter; it gets it under a new name else."""
        name = self.tensor_attrs.get(tensor)
        if name is None:
            name = self.tensor_attrs[tensor] = self.get_fresh_qualname("_tensor_constant")
            setattr(self.root, name, tensor)
        return name

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one step: those of `lucid_gpu.nn` but Sequential are."""
        return type(m).__module__.startswith(_LEAVES) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a module below the root.

        Raises
        ------
        NameError
            For a module that is not below it.
        """
        if self.submodule_paths:
            if mod in self.submodule_paths:
                return self.submodule_paths[mod]
            raise NameError("module is not installed as a submodule")
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What a call of a module gives: a node of a leaf, what ``forward`` gives of another."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            calls = self.num_calls.get(path, 0)
            key = f"{scope.module_path}@{calls}" if calls else scope.module_path
            self.module_stack[key] = (path, scope.module_type)
            self.num_calls[path] = calls + 1
            if self.is_leaf_module(m, path):
                result = self.create_proxy("call_module", path, args, kwargs)
            else:
                result = forward(*args, **kwargs)
            self.module_stack.popitem(last=True)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What reading an attribute of a module gives: of a parameter, a proxy."""
        held: Iterable[tuple[str, Any]] = ()
        if isinstance(attr_val, Parameter):
            held = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            held = self.root.named_buffers()
        for name, value in held:
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self._read(name, attr_val)
                return parameter_proxy_cache[name]
        return attr_val

    def _read(self, name: str, value: Any) -> Proxy:
        if "proxy_factory_fn" not in inspect.signature(self.create_proxy).parameters:
            return self.create_proxy("get_attr", name, (), {})
        make = (
            (lambda n: ParameterProxy(self, n, name, value)) if self.param_shapes_constant else None
        )
        return self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=make)

    # --- the arguments of the root

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """The function to call, and its arguments: a proxy for each that is not given."""
        analysed = inspect.unwrap(root_fn)
        parameters = list(inspect.signature(analysed).parameters.values())
        star = [p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        plain = [p for p in parameters if p not in star]
        args: list[Any] = []
        if is_module:
            if not plain:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        if isinstance(concrete_args, tuple) and concrete_args and star and len(plain) == 1:
            for index, value in enumerate(concrete_args):
                proxy = self.create_proxy("placeholder", f"input_{index}", (), {})
                _take_marks(value, proxy)
                args.append(proxy)
            return root_fn, args
        asked = plain[1:] if is_module else plain
        if isinstance(concrete_args, tuple):
            if len(asked) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(asked)} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = {p.name: v for p, v in zip(asked, concrete_args, strict=True)}
        if star:
            raise NotImplementedError(
                f"symbolic_trace: {analysed.__qualname__} takes {star[0]}, and a proxy for it has "
                "no length by which a call could hand it on; name the parameters, or give "
                "concrete_args as a tuple with an entry for each"
            )
        args += [self._placeholder(p, concrete_args, analysed) for p in asked]
        by_name = [p.name for p in plain if p.kind is p.KEYWORD_ONLY]
        if by_name:
            root_fn = _with_keywords(root_fn, len(plain) - len(by_name), by_name)
        return self._nested([p.name for p in plain], root_fn, args)

    def _nested(
        self, names: list[str], root_fn: Callable[..., Any], args: list[Any]
    ) -> tuple[Any, list[Any]]:
        """The function of the leaves of its arguments, where those are nested."""
        flat, structure = trees.flatten(tuple(args))
        if all(child.kind is None for child in structure.children):
            return root_fn, args
        self.graph._codegen = generator = PyTreeCodeGen(PyTreeInfo(names, structure, None))

        def flatten_fn(*args: Any) -> list[Any]:
            results, out = trees.flatten(root_fn(*trees.unflatten(args, structure)))
            generator.pytree_info = generator.pytree_info._replace(out_spec=out)
            return results

        return flatten_fn, flat

    def _placeholder(
        self, parameter: inspect.Parameter, concrete_args: Any, function: Callable[..., Any]
    ) -> Any:
        name = parameter.name
        default = () if parameter.default is parameter.empty else (parameter.default,)
        if concrete_args is not None and name in concrete_args:
            count = 0

            def specialized(value: Any) -> Any:
                nonlocal count
                count += 1
                proxy = self.create_proxy("placeholder", f"{name}_{count}", default, {})
                return self._specialized(name, value, proxy)

            return trees.tree_map(specialized, concrete_args[name])
        annotation = function.__annotations__.get(name)
        return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)

    def _specialized(self, name: str, value: Any, proxy: Proxy) -> Any:
        """A value given to the trace; the graph checks that it is called with the same."""
        if isinstance(value, PHBase):
            _take_marks(value, proxy)
            return proxy
        if type(value) is bool or (type(value) in base_types and type(value) is not Tensor):
            lucid_gpu._assert(
                proxy == value,
                f"{name} has been specialized to have value {value} but got another value",
            )
        elif value is None:
            sentence = f"{name} has been specialized to have value None but got another value"
            self.create_proxy("call_function", _assert_is_none, (proxy, sentence), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs you "
                "specialized the function with.",
                stacklevel=2,
            )
        return value

    # --- a trace

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's forward, or of a function.

        Parameters
        ----------
        root : Module or function
        concrete_args : dict, optional
            Arguments, by name, that are values while it is traced instead of proxies.
        """
        with _as_tracing():
            if isinstance(root, Module):
                self.root = root
                function = getattr(type(root), self.traced_func_name, None)
                if function is None:
                    raise AssertionError(
                        f"traced_func_name={self.traced_func_name} doesn't exist in "
                        f"{type(root).__name__}"
                    )
                self.root_module_name = type(root).__name__
                self.submodule_paths = {m: name for name, m in root.named_modules()}
            else:
                self.root, function = Module(), root
            self.graph = Graph(tracer_cls=type(self))
            self.tensor_attrs: dict[Any, str] = {}
            self._note_tensors(self.root, "")
            if type(function) not in METHODS:
                raise AssertionError(f"Expected FunctionType, got {type(function)}")
            names = function.__globals__
            called, args = self.create_args_for_root(
                function, isinstance(root, Module), concrete_args
            )
            with ExitStack() as stack:
                self._watch(stack, names)
                result = self.create_arg(called(*args))
                annotations = inspect.get_annotations(inspect.unwrap(called))
                kind = annotations.get("return")
                self.create_node("output", "output", (result,), {}, type_expr=kind)
            self.submodule_paths = None
        return self.graph

    def _watch(self, stack: ExitStack, names: dict[str, Any]) -> None:
        """See calls of modules, reads of parameters, wrapped functions, until the stack ends."""
        patcher = stack.enter_context(Patcher())
        cache: dict[str, Proxy] = {}
        thread = threading.get_ident()

        def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if threading.get_ident() != thread:
                return hooks.ran(module, args, kwargs)
            names = getattr(getattr(module, "forward", module), "__globals__", {})
            _autowrap_check(patcher, names, self._autowrap_function_ids)
            forward = functools.partial(_orig_module_call, module)
            return self.call_module(module, forward, args, kwargs)

        def read(module: Module, name: str, value: Any) -> Any:
            if threading.get_ident() != thread:
                return value
            return self.getattr(name, value, cache)

        for kind, function in (("call", call), ("read", read)):
            stack.callback(hooks.register(hooks.EVERYWHERE, (kind, function)).remove)
        _patch_wrapped_functions(patcher)
        _autowrap_check(patcher, names, self._autowrap_function_ids)
        for module in self._autowrap_search:
            _autowrap_check(patcher, vars(module), self._autowrap_function_ids)

    def _note_tensors(self, module: Module, path: str) -> None:
        """Note the names of tensors that are plain attributes."""
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                self.tensor_attrs[value] = path + name
        for name, child in module.named_children():
            self._note_tensors(child, f"{path}{name}.")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        copied = Tracer.__new__(Tracer)
        for name, value in vars(self).items():
            modules = name == "_autowrap_search"
            vars(copied)[name] = copy.copy(value) if modules else copy.deepcopy(value, memo)
        return copied


def _take_marks(mark: Any, proxy: Proxy) -> None:
    """Give a proxy's node the attributes of what stands for it in ``concrete_args``."""
    if isinstance(mark, PHBase) and mark is not PH:
        for name, value in vars(mark).items():
            if not hasattr(proxy.node, name):
                setattr(proxy.node, name, value)


def _with_keywords(function: Any, positional: int, names: list[str]) -> Callable[..., Any]:
    """A function that takes keyword-only parameters after the others, by position."""

    def call(*args: Any) -> Any:
        return function(*args[:positional], **dict(zip(names, args[positional:], strict=True)))

    return call
