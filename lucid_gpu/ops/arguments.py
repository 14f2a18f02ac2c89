"""What may be passed for a tensor: a tensor, and on the device where the others are."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from inspect import Parameter, Signature, signature, unwrap
from typing import Any, TypeVar, cast

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype, dtype, unimplemented
from lucid_gpu.fusion.building import one_device
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import (
    body_of,
    checked_numbers,
    interpreters,
    number_parameters,
    type_name,
    with_public_name,
)
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.overrides import UNHANDLED, handled, handled_after, handling, overrides
from lucid_gpu.tape.short import short
from lucid_gpu.tensor import Tensor

Op = TypeVar("Op", bound=Callable[..., Any])


def require_tensor(op: str, role: str, position: int, given: Any) -> None:
    """Refuse anything but a tensor in PyTorch's words."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{op}(): argument '{role}' (position {position}) must be Tensor, not "
            f"{type_name(given)}"
        )


def require_tensors(op: str, **given: Any) -> None:
    """Refuse anything but a tensor among the first arguments, which are given in their order."""
    for index, (role, value) in enumerate(given.items()):
        require_tensor(op, role, index + 1, value)


def is_number(value: Any) -> bool:
    """Whether a size or dimension is one number, perhaps in a 0-d tensor, rather than several."""
    if isinstance(value, int):
        return True
    return not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0


def as_ints(values: Sequence[Any]) -> tuple[int, ...] | None:
    """Whole numbers as ints; None where one is not, or, as PyTorch looks, the first is a bool."""
    for n in values:
        if type(n) is not int:
            break
    else:
        return tuple(values)
    try:
        ints = tuple([operator.index(n) for n in values])
    except TypeError:
        return None
    return None if is_bool(values[0]) else ints


def extents(op: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes of a tensor to be made: ints, given one by one or as one sequence of them."""
    first: Any = size[0] if size else 0
    if type(first) is not int and not is_number(first):
        if len(size) > 1:
            raise TypeError(
                f"{op}() received an invalid combination of arguments - got "
                f"({', '.join(type_name(n) for n in size)}); it takes ints or one tuple of ints"
            )
        if type(first) is not tuple and isinstance(first, (Tensor, str, Set, Mapping)):
            raise TypeError(_not_ints(op, first))
        size = tuple(first)
    sizes = as_ints(size)
    if sizes is None:
        raise TypeError(_not_ints(op, *size))
    for n in sizes:
        if n < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n}: {list(sizes)}"
            )
    return sizes


def is_bool(value: Any) -> bool:
    """Whether a value is True or False, which PyTorch takes for no whole number."""
    return isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype is dt.bool)


def _not_ints(op: str, *size: Any) -> str:
    wrong = next((n for n in size if not hasattr(n, "__index__") or is_bool(n)), size[0])
    return f"{op}(): argument 'size' must be tuple of ints, not {type_name(wrong)}"


def as_float(op: str, role: str, position: int, value: Any) -> float:
    """A real number, or a tensor of one, as a float; TypeError for anything else."""
    if not hasattr(value, "__float__"):
        raise TypeError(
            f"{op}(): argument '{role}' (position {position}) must be float, not "
            f"{type(value).__name__}"
        )
    return float(value)


def require_float(op: str, input: Any) -> None:
    """Refuse anything but a tensor of real floating point numbers."""
    if not isinstance(input, Tensor):
        require_tensor(op, "input", 1, input)
    if input._expr.program.dtype.category != 2:
        raise unimplemented(op, input.dtype)


def require_one_dtype(sentence: str, first: Tensor, *others: Tensor) -> None:
    """Refuse tensors of several types; the sentence says what was expected."""
    for other in others:
        if other.dtype is not first.dtype:
            raise RuntimeError(
                f"{sentence}, but got {first.dtype.type_name} and {other.dtype.type_name}: "
                "convert one with .to(dtype)"
            )


def in_float32(function: Op) -> Op:
    """Have a composition compute what all its arguments give in 16 bits in float32, and round once.

    Counts and sums on the way to a result may be out of the range of float16.
    """

    @functools.wraps(function)
    def wide(*args: Any, **named: Any) -> Any:
        types = set()
        for a in (*args, *named.values()):
            if isinstance(a, Tensor) and (d := a._expr.program.dtype).category == 2:
                if d.compute is d:
                    return function(*args, **named)
                types.add(d)
        if len(types) != 1:
            return function(*args, **named)
        (narrow,) = types
        given = [_converted(a, narrow, narrow.compute) for a in (*args, *named.values())]
        settings = dict(zip(named, given[len(args) :], strict=True))
        return _converted(function(*given[: len(args)], **settings), narrow.compute, narrow)

    return cast(Op, wide)


def _converted(value: Any, d: dtype, to: dtype) -> Any:
    return value.to(to) if isinstance(value, Tensor) and value.dtype is d else value


def require_parameter_types(d: dtype, parameters: Iterable[dtype]) -> None:
    """Refuse parameters of a normalization in another type than the input's.

    Beside 16-bit floats they may be float32, in which these are computed.
    """
    for own in parameters:
        if own is not d and own is not d.compute:
            raise RuntimeError(
                f"mixed dtype: expect parameter to have scalar type of {d.compute.type_name} "
                f"beside an input of {d.type_name}, but got {own.type_name}: convert it with "
                ".to(dtype)"
            )


def refusal_of(
    function: Callable[..., Any],
    error: Exception,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    method: bool = False,
) -> Exception:
    """PyTorch's refusal of an argument that had to be a tensor, or the error as it was.

    The positions of a method's arguments do not count the tensor whose it is.
    """
    parameters = signature(function).parameters
    arguments = {**dict(zip(parameters, args, strict=False)), **(kwargs or {})}
    lacking = error.obj if isinstance(error, AttributeError) else error
    for index, (role, parameter) in enumerate(parameters.items()):
        value = arguments.get(role, arguments)
        if type(value) in (list, tuple) and parameter.kind is not parameter.VAR_POSITIONAL:
            for i, element in enumerate(value):
                if element is lacking and not isinstance(element, Tensor):
                    return no_tensor(i, element, index)
        wanted = value is lacking or parameter.annotation == "Tensor"
        none = value is not arguments and not isinstance(value, Tensor)
        if wanted and none and not overrides(value):
            kind = type_name(value)
            hint = "" if " " in kind else ": lucid_gpu.tensor(...) makes one"
            return TypeError(
                f"{function.__name__.lstrip('_')}(): argument '{role}' (position "
                f"{index + 1 - method}) must be Tensor, not {kind}{hint}"
            )
    return with_public_name(function, error, args, dict(kwargs or {}))


def no_tensor(place: int, element: Any, argument: int = 0) -> TypeError:
    """PyTorch's refusal of anything but a tensor in a sequence of tensors."""
    return TypeError(
        f"expected Tensor as element {place} in argument {argument}, but got {type_name(element)}"
    )


def guarded(function: Op, method: bool = False, out: bool = False) -> Op:
    """A function as users call it: it says which argument is no tensor, after it failed so.

    Objects that override ops are asked first. NumPy's names for ``dim``, ``dims`` and ``keepdim``
    are looked at after a failure; ``out=`` is taken where ``out`` is set.
    """

    body = body_of(function)
    first, plain = number_parameters(body)
    numpys_names = _numpys_names(function)

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = checked_numbers(function, plain, args, kwargs)
        if handling and (answer := handled(op, args, kwargs)) is not UNHANDLED:
            return answer
        try:
            if out and "out" in kwargs:
                return _called_into(function, args, **kwargs)
            return (function if interpreters else body)(*args, **kwargs)
        except Exception as error:
            return failed(error, args, kwargs)

    def failed(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (answer := handled_after(_shown(op), args, kwargs)) is not UNHANDLED:
            return answer
        if "unexpected keyword" in str(error) and not numpys_names.keys().isdisjoint(kwargs):
            renamed = _by_our_names(function.__name__, numpys_names, kwargs)
            return op(*args, **renamed)
        refusal = refusal_of(function, error, args, kwargs, method)
        if refusal is error:
            raise error
        raise refusal from None

    careful = frozenset([*[name for name, _, _ in plain], *["out"] * out])
    seen, most = (interpreters, handling), first if plain else None
    op: Any = short(body, slow, failed, (Exception,), seen, most, careful, plain)
    functools.update_wrapper(op, function)
    return cast(Op, showing(function, op))


def public(function: Op) -> Op:
    """An op as users call it, with ``out=``."""
    return guarded(function, out=True)


def one_by_one(function: Op) -> Op:
    """Make the method of a function that takes several numbers in a tuple: one by one, too."""

    @functools.wraps(function)
    def method(self: Tensor, *numbers: Any, **named: Any) -> Any:
        return function(self, *((numbers,) if len(numbers) > 1 else numbers), **named)

    return cast(Op, method)


def published(method: Op) -> Op:
    """A method as a function of `lucid_gpu`, with ``out=`` where it `takes_out`."""
    return guarded(method, out=getattr(method, "takes_out", False))


def with_out(function: Op) -> Op:
    """A function that `takes_out` with ``out=``; any other as it is."""
    return public(function) if getattr(function, "takes_out", False) else function


def _called_into(function: Any, args: Any, *, out: Any, **kwargs: Any) -> Any:
    """What a function puts where ``out=`` says; autocast leaves it alone."""
    if out is None:
        return function(*args, **kwargs)
    name = function.__name__
    if name in _OUT_DECIDES:
        kwargs["dtype"] = type_for(kwargs.get("dtype"), out)
    before = state.in_op
    state.in_op = before or bool(interpreters)
    try:
        return put_into(function(*args, **kwargs), out, name)
    finally:
        state.in_op = before


def several(op: str, tensors: Any) -> list[Tensor]:
    """A sequence of tensors as a list; one tensor, or anything but a sequence, is refused."""
    if type(tensors) not in (list, tuple) and (
        isinstance(tensors, Tensor) or not isinstance(tensors, Iterable)
    ):
        raise TypeError(
            f"{op}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
            f"{type(tensors).__name__}: write {op}([a, b])"
        )
    return list(tensors)


def require_one_device(op: str, first: Tensor, *others: Tensor | None) -> None:
    """Refuse tensors on several devices in PyTorch's words; None is no tensor."""
    where = first._expr.program.device
    for other in others:
        if other is not None and other._expr.program.device is not where:
            one_device(op, [t._expr for t in (first, *others) if t is not None])


# ops that compute in the type of ``out=``
_OUT_DECIDES = frozenset(("cumsum", "cumprod", "mean", "nansum", "prod", "sum"))
LACKING: Any = object()  # what a function takes for an argument that was not given
_NUMPYS_NAMES = {"axis": "dim", "axes": "dims", "keepdims": "keepdim", "x": "input", "a": "input",
                 "x1": "input", "x2": "other"}  # fmt: skip


def _numpys_names(function: Callable[..., Any]) -> dict[str, str]:
    """Those of NumPy's names that a function has by other names."""
    names = unwrap(function).__annotations__
    return {k: v for k, v in _NUMPYS_NAMES.items() if v in names and k not in names}


def _by_our_names(
    function: str, names: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments by our names; TypeError for one that is given by NumPy's name too."""
    renamed: dict[str, Any] = {}
    for name, value in given.items():
        own = names.get(name, name)
        if own in renamed:
            numpys = next(k for k, v in names.items() if v == own and k in given)
            raise TypeError(f"{function}() got both {own}= and {numpys}=; write one of them")
        renamed[own] = value
    return renamed


def signature_of(*names: str, **options: Any) -> Signature:
    """The signature of an elementwise function, which takes NumPy's names besides."""
    kinds = {False: Parameter.POSITIONAL_OR_KEYWORD, True: Parameter.VAR_POSITIONAL}
    given = [Parameter(n.lstrip("*"), kinds[n[0] == "*"], annotation="Any") for n in names]
    named = [
        Parameter(n, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for n, default, kind in (
            *((n, default, "Number") for n, default in options.items()),
            ("out", None, "Tensor | None"),
        )
    ]
    return Signature([*given, *named], return_annotation="Tensor")


def by_numpys_names(
    function: Callable[..., Any], named: Mapping[str, Any], **given: Any
) -> dict[str, Any]:
    """What a call gives by our names or NumPy's; TypeError for what is missing or unknown."""
    name = function.__name__
    arguments = {role: value for role, value in given.items() if value is not LACKING}
    for role, value in named.items():
        own = _NUMPYS_NAMES.get(role, role)
        if own not in given:
            raise TypeError(f"{name}() got an unexpected keyword argument '{role}'")
        if own in arguments:
            raise TypeError(f"{name}() got multiple values for argument '{own}'")
        arguments[own] = value
    missing = [f"'{role}'" for role in given if role not in arguments]
    if missing:
        raise TypeError(
            f"{name}() missing {len(missing)} required positional "
            f"argument{'s' * (len(missing) > 1)}: {' and '.join(missing)}"
        )
    return arguments


def _shown(function: Any) -> Any:
    return function.shown


def showing(function: Callable[..., Any], public: Callable[..., Any]) -> Callable[..., Any]:
    """The public function, as that which an op shows to those who override it."""
    public.shown = public  # type: ignore[attr-defined]
    inner: Any = function
    while inner is not None:
        if inner.__dict__.get("shown", function) is function:
            inner.shown = public
        inner = getattr(inner, "__wrapped__", None)
    return public


def takes_out(function: Op) -> Op:
    """Say that ``out=`` is taken by the function of `lucid_gpu`, where the method takes none."""
    function.takes_out = True  # type: ignore[attr-defined]
    return function


def put_into(result: Any, out: Any, name: str) -> Any:
    """Put a result, or each of several, where ``out=`` says."""
    if out is None or isinstance(result, Tensor):
        return into(result, out, name) if out is not None else result
    if isinstance(out, Tensor):
        if name == "nonzero":
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        raise RuntimeError(f"{name}() gives {len(result)} tensors here, and takes no out=")
    if len(out) != len(result):
        raise TypeError(
            f"{name}(): argument 'out' must be a tuple of {len(result)} Tensors, got {len(out)}"
        )
    for r, o in zip(result, out, strict=True):
        if name in _EXACT_TOGETHER and o.dtype is not r.dtype:
            raise RuntimeError(_other_type(r, o, name))
    fields = getattr(result, "_fields", ("result",) * len(result))
    triples = zip(result, out, fields, strict=True)
    parts = [into(r, o, name, part=field) for r, o, field in triples]
    return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)


# ops of which PyTorch converts no result for ``out=``
_EXACT = """abs ceil conj_physical floor frac mm matmul median neg nan_to_num round sign sort tril
    triu trunc bmm dot mv addmm addmv baddbmm addbmm gather index_select take topk amax
    amin argmax argmin kthvalue mode norm softmax log_softmax clamp clamp_min clamp_max clip
    scatter scatter_add index_add masked_select nonzero diag cross inner cummax cummin logcumsumexp
    take_along_dim inverse qr svd chain_matmul index_copy quantile nanquantile renorm aminmax
    isposinf isneginf signbit frexp sgn histogram msort triangular_solve heaviside tensordot
    narrow_copy bucketize searchsorted float_power where inv inv_ex det slogdet solve
    solve_triangular cholesky cholesky_ex eigh eigvalsh svdvals matrix_power
    multi_dot vector_norm matrix_norm lu lu_factor vecdot vdot bitwise_not isin linear logsigmoid
    hardshrink softshrink gelu softplus ormqr slice_scatter index_reduce scatter_reduce multinomial
    histc lu_unpack lu_solve lu_factor_ex solve_ex avg_pool2d avg_pool3d complex polar ifft
    ihfft alias_copy as_strided_copy detach_copy diagonal_copy expand_copy permute_copy slice_copy
    squeeze_copy t_copy transpose_copy unfold_copy unsqueeze_copy view_copy unbind_copy
    split_with_sizes_copy linalg_cross frobenius_norm nuclear_norm ldl_factor ldl_solve"""
EXACT = frozenset(_EXACT.split())
_EXACT_TOGETHER = ("max", "min")  # of these, what gives indices beside the values
_JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "row_stack",
          "column_stack")  # fmt: skip
# ops of linear algebra that say which result no cast puts into ``out=``, as PyTorch calls them
_CASTING = {
    **{op: op for op in ("cholesky_inverse", "cholesky_solve", "tensorinv", "tensorsolve")},
    **{op: f"linalg.{op}" for op in ("cond", "pinv")},
    **{op: f"torch.linalg.{op}" for op in ("eig", "eigvals", "householder_product", "lstsq")},
    "geqrf": "torch.geqrf",
}
_REAL = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")


def into(
    result: Tensor,
    out: Tensor | None,
    name: str,
    *,
    made: bool = False,
    part: str = "result",
) -> Tensor:
    """Put a result where ``out=`` says; what is ``made`` of numbers resizes without a warning."""
    if out is None:
        return result
    if name in EXACT and out.dtype is not result.dtype:
        raise RuntimeError(_other_type(result, out, name))
    if name in _CASTING and result.dtype.category > out.dtype.category:
        part = "eigenvalues" if name == "eigvals" else part
        raise RuntimeError(
            f"{_CASTING[name]}: Expected {part} to be safely castable from "
            f"{result.dtype.type_name} dtype, but got {part} with dtype {out.dtype.type_name}"
        )
    if name in ("all", "any") and out.dtype.name not in ("bool", "uint8"):
        raise RuntimeError(
            f"{name} only supports bool tensor for result, got: {out.dtype.type_name}"
        )
    if name in ("all", "any"):
        result = result.to(out.dtype)
    if name in _JOINS and result.dtype.category > out.dtype.category:
        raise TypeError(
            "torch.cat(): input types can't be cast to the desired output type "
            f"{out.dtype.type_name}, in {name}()"
        )
    if name in _REAL and out.dtype.is_complex:
        raise RuntimeError(
            f"{name} expects a floating point output tensor, but got {out.dtype.name}"
        )
    if out.device is not result.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {name}() gives a tensor on "
            f"{result.device} and out= is on {out.device}"
        )
    if result._is_sparse or out._is_sparse:
        raise NotImplementedError(
            f"{name}(): out= takes and gives dense tensors; call .to_dense() first"
        )
    if state.grad and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if result._wrapper is not None or out._wrapper is not None:
        raise NotImplementedError(
            f"Trying to use forward AD or vmap with {name}_out that does not support it because it "
            f"is an out= function; write x = {name}(...) or x.copy_({name}(...))."
        )
    if out._expr.shape != result._expr.shape:
        _resize(out, result, name, warns=not made)
    written: Tensor = out._write(result, name)
    return written


def _other_type(result: Tensor, out: Tensor, name: str) -> str:
    """PyTorch's sentence for an ``out=`` of a type that the op does not convert to."""
    actual, wanted = out.dtype.name, result.dtype.name
    if name in ("isposinf", "isneginf", "signbit"):
        return f"{name} does not support non-boolean outputs, got {actual}."
    if name == "float_power":
        return (
            f"the output given to float_power has dtype {actual} but the operation's result "
            f"requires dtype {wanted}"
        )
    if name == "histogram":
        return (
            "torch.histogram(): input tensor and hist tensor should have the same dtype, and "
            "input tensor and bin_edges tensor should have the same dtype, but got "
            f"{wanted} and {actual}"
        )
    if name in ("searchsorted", "bucketize"):
        return (
            f"torch.searchsorted(): output tensor's dtype is wrong, {wanted} is computed, but out= "
            f"is {actual}; out_int32=True computes int32"
        )
    if name in ("quantile", "nanquantile"):
        return (
            f"{name}() out tensor must be same dtype as the input tensor, {wanted}, but got "
            f"{actual}"
        )
    if name in ("cummax", "cummin", "logcumsumexp"):
        return (
            f"expected scalar_type {result.dtype.type_name} but found {out.dtype.type_name} for "
            f"out=, in {name}()"
        )
    if name in ("complex", "polar"):
        return (
            f"Expected object of scalar type {result.dtype.type_name} but got scalar type "
            f"{out.dtype.type_name} for argument 'out'"
        )
    if name == "nonzero":
        return (
            "nonzero: Expected out tensor to have scalar type Long but got scalar type "
            f"{out.dtype.type_name}"
        )
    if name == "frexp":
        part = "mantissa" if result.dtype.category == 2 else "exponent"
        return f"torch.frexp() expects {part} to have dtype {wanted} but got {actual}"
    return (
        f"Expected out tensor to have dtype {result.dtype.cpp_name}, but got {out.dtype.cpp_name} "
        f"instead, in {name}()"
    )


def type_for(dtype: Any, out: Tensor | None) -> Any:
    """The type of what a function that makes numbers computes: that of ``out``, where there is one.

    RuntimeError if both are given and differ.
    """
    if out is None:
        return dtype
    if dtype is not None and as_dtype(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {as_dtype(dtype).type_name} does not match dtype of out parameter "
            f"({out.dtype.type_name})"
        )
    return out.dtype


def shape_for(array: Any, out: Tensor | None) -> Any:
    """A vector in the shape of ``out``, where that has as many elements."""
    fits = out is not None and out.numel() == array.size
    return array.reshape(tuple(out.shape)) if fits else array  # type: ignore[union-attr]


def _resize(out: Any, result: Any, name: str, warns: bool) -> None:
    """Give ``out`` memory of the result's shape, as in PyTorch; a warning unless it is empty."""
    if result.dtype.category > out.dtype.category:
        raise RuntimeError(
            f"result type {result.dtype.type_name} can't be cast to the desired output type "
            f"{out.dtype.type_name} in {name}"
        )
    if warns and out.numel():
        warn_user(
            "An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape "
            f"{list(result.shape)}. This behavior is deprecated, and in a future PyTorch release "
            "outputs will not be resized unless they have zero elements. You can explicitly reuse "
            "an out tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
        )
    out._take_sizes(tuple(result.shape), _order(result))


def _order(result: Any) -> tuple[int, ...] | None:
    """The order in which a result's dimensions lie, None for row by row."""
    if result.is_contiguous():
        return None
    strides = result.stride()
    return tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))
