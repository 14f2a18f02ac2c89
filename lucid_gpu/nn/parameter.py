"""Tensors that a module learns, and tensors it only carries."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from lucid_gpu.core.value import Expr, give
from lucid_gpu.ops.copying import like
from lucid_gpu.ops.creation import empty
from lucid_gpu.tape.door import require_kind, type_name
from lucid_gpu.tape.overrides import disabled, fields, overrides, without_handlers
from lucid_gpu.tensor import Tensor, as_kind

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]

_T = TypeVar("_T", bound=Tensor)


def forget_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop the gradients of parameters, or cut these from their graphs and fill them with zeros."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if set_to_none:
            parameter.grad = None
        else:
            gradient.detach_() if gradient.grad_fn is not None else gradient.requires_grad_(False)
            gradient.zero_()


def _made_from(cls: type[_T], data: Tensor | None) -> _T:
    """A leaf of a subclass that shares a tensor's memory, but not its history."""
    if data is not None and not isinstance(data, Tensor):
        raise TypeError(f"{cls.__name__} takes a Tensor, got {type_name(data)}")
    if data is not None and data._is_sparse:
        raise NotImplementedError(
            f"{cls.__name__} holds dense tensors: call .to_dense() first, or make the values of a "
            "sparse tensor the parameter"
        )
    return as_kind(cls, (empty(0) if data is None else data).detach())


def _of_subclass(data: Any, requires_grad: bool) -> Any:
    """A parameter of a class that overrides ops: of that class, with the mark of a parameter."""
    made = data.detach().requires_grad_(requires_grad)
    if type(made) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that "
            "detach() returns an instance of the same type, but return type "
            f"{type(made).__name__} was found instead. To use the type as a Parameter, please "
            "correct the detach() semantics defined by its __torch_function__() implementation."
        )
    made._is_param = True
    return made


class _Parameters(type):
    """The class of `Parameter`: a tensor with the mark of a parameter is one."""

    def __instancecheck__(cls, value: object) -> bool:
        if type.__instancecheck__(cls, value):
            return True
        return (
            cls is Parameter and isinstance(value, Tensor) and fields(value).get("_is_param", False)
        )


class Parameter(Tensor, metaclass=_Parameters):
    """A tensor that a `Module` registers as learnable when it is assigned as an attribute.

    Parameters
    ----------
    data : Tensor, optional
        Initial value; its memory is shared, its history is not. An empty tensor by default. Of one
        whose class overrides ops, the parameter is of that class, and still an instance of this.
    requires_grad : bool
        True by default.
    """

    __torch_function__ = staticmethod(disabled)

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = True, **marks: Any
    ) -> Parameter:
        """As above; ``marks`` are what ``vars`` shows of another parameter, and not taken over.

        Accelerate passes them on: PyTorch's tensors have none.
        """
        for name in marks:
            if name[0] != "_":
                raise TypeError(
                    f"{cls.__name__}.__new__() got an unexpected keyword argument {name!r}; it "
                    "takes data and requires_grad"
                )
        require_kind(cls, "requires_grad", bool, requires_grad)
        if isinstance(data, Tensor) and overrides(data):
            return _of_subclass(data, requires_grad)
        made = _made_from(cls, data)
        return without_handlers(type(made)._mark, made) if requires_grad else made

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A copy that has learned nothing yet: without the gradient, as in PyTorch."""
        other: Any = like(self, self.detach().clone())
        memo[id(self)] = other
        return other

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a `Module` registers as state that is not learned.

    Parameters
    ----------
    data : Tensor, optional
    persistent : bool
        Whether `Module.state_dict` contains it.
    """

    __torch_function__ = staticmethod(disabled)
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        made = _made_from(cls, data)
        made.persistent = persistent
        return made


class _Opened(threading.local):
    """How many of `_ASKED_BEFORE` run on a thread."""

    count = 0


_opened = _Opened()


class UninitializedTensorMixin(Tensor):
    """A tensor whose shape a lazy module has yet to see.

    Its value refuses to be read, so that every op on it does, but for `_ASKED_BEFORE`.
    """

    __torch_function__ = staticmethod(disabled)
    _becomes: type[Tensor]

    @property
    def _expr(self) -> Expr:
        if not _opened.count:
            raise ValueError(
                f"Attempted to use an uninitialized parameter, an {type(self).__name__}. This "
                "error happens when you are using a `LazyModule` or explicitly manipulating "
                f"`lucid_gpu.nn.parameter.{type(self).__name__}` objects. When using LazyModules "
                "Call `forward` with a dummy batch to initialize the parameters before calling "
                "torch functions"
            )
        value: Expr = fields(self)["_expr"]
        return value

    @_expr.setter
    def _expr(self, value: Expr) -> None:
        fields(self)["_expr"] = value

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def detach(self) -> Any:
        """The same: there is no memory to share."""
        return self

    @property
    def data(self) -> Tensor:
        """No elements."""
        return Tensor.detach(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.fset(self, value)  # type: ignore[attr-defined]

    def share_memory_(self) -> Any:
        """Refuse with a RuntimeError: there is no memory to share."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def materialize(
        self, shape: Sequence[int] | int, device: Any = None, dtype: Any = None
    ) -> None:
        """Become an ordinary parameter or buffer of a shape, with memory that holds anything."""
        where, kind = device or self.device, dtype or self.dtype
        value = fields(self).pop("_expr")
        self.__class__ = self._becomes  # type: ignore[assignment]
        give(self, value)
        self.data = empty(shape, device=where, dtype=kind)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        other = type(self)(device=self.device, dtype=self.dtype)
        memo[id(self)] = other
        return other._mark(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _uninitialized, (type(self), self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


# What is known, or may be changed, before the shape is: PyTorch's list, and what `Optimizer` asks.
_CONVERSIONS = "half float double bfloat16 char short int long bool cuda cpu to"
_ASKED_BEFORE = f"""dtype device requires_grad requires_grad_ grad is_leaf retains_grad is_cuda
    is_meta is_cpu ndim get_device is_complex is_floating_point is_inference data _mark grad_fn
    {_CONVERSIONS}"""


def _asked_before(name: str) -> Any:
    """An attribute of `Tensor`, or of the mixin, that reads the value all the same."""
    attribute = vars(UninitializedTensorMixin).get(name) or getattr(Tensor, name)

    def opening(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            _opened.count += 1
            try:
                return function(*args, **kwargs)
            finally:
                _opened.count -= 1

        return call

    if isinstance(attribute, property):
        getter, setter = [opening(f) if f else None for f in (attribute.fget, attribute.fset)]
        return property(getter, setter, doc=attribute.__doc__)
    return opening(attribute)


for _name in _ASKED_BEFORE.split():
    setattr(UninitializedTensorMixin, _name, _asked_before(_name))


def _uninitialized(cls: Any, requires_grad: bool, where: Any, dtype: Any) -> Any:
    """One as it was pickled."""
    return cls(device=where, dtype=dtype)._mark(requires_grad)


def is_lazy(param: Any) -> bool:
    """Whether this is a parameter or buffer whose shape is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter of a lazy module before its shape is known.

    Parameters
    ----------
    requires_grad : bool
    device, dtype : optional
        Of the parameter that it becomes.
    """

    _becomes = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Parameter.__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin):
    """A buffer of a lazy module before its shape is known.

    Parameters
    ----------
    device, dtype : optional
        Of the buffer that it becomes.
    """

    _becomes = Tensor

    def __new__(cls, device: Any = None, dtype: Any = None) -> UninitializedBuffer:
        return _made_from(cls, empty(0, device=device, dtype=dtype))


def _another(name: str) -> Any:
    """A conversion of buffers whose shape is not known: another one, of its device and dtype."""

    @functools.wraps(getattr(Tensor, name))
    def convert(self: UninitializedBuffer, *args: Any, **kwargs: Any) -> UninitializedBuffer:
        like = getattr(self.data, name)(*args, **kwargs)
        return type(self)(device=like.device, dtype=like.dtype)

    return convert


for _name in _CONVERSIONS.split():
    setattr(UninitializedBuffer, _name, _another(_name))
