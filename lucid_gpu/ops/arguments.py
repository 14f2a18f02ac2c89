"""What may be passed for a tensor: a tensor, and on the device where the others are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any, TypeVar, cast

from lucid_gpu.dtypes import as_dtype
from lucid_gpu.fusion.expression import one_device
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import body_of, interpreters
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor

Op = TypeVar("Op", bound=Callable[..., Any])


def require_tensor(op: str, role: str, position: int, given: Any) -> None:
    """Refuse anything but a tensor in PyTorch's words."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{op}(): argument '{role}' (position {position}) must be Tensor, not "
            f"{type(given).__name__}"
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
    require_tensor(op, "input", 1, input)
    if input._expr.program.dtype.category != 2:
        raise NotImplementedError(f'"{op}" not implemented for {input.dtype.name}')


def require_one_dtype(sentence: str, first: Tensor, *others: Tensor) -> None:
    """Refuse tensors of several types; the sentence says what was expected."""
    for other in others:
        if other.dtype is not first.dtype:
            raise RuntimeError(
                f"{sentence}, but got {first.dtype.name} and {other.dtype.name}: convert one with "
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
        if wanted and value is not arguments and not isinstance(value, Tensor):
            return TypeError(
                f"{function.__name__.lstrip('_')}(): argument '{role}' (position "
                f"{index + 1 - method}) must be Tensor, not {type(value).__name__}: "
                "lucid_gpu.tensor(...) makes one"
            )
    return error


def no_tensor(place: int, element: Any, argument: int = 0) -> TypeError:
    """PyTorch's refusal of anything but a tensor in a sequence of tensors."""
    return TypeError(
        f"expected Tensor as element {place} in argument {argument}, but got "
        f"{type(element).__name__}"
    )


def guarded(function: Op, method: bool = False) -> Op:
    """A function that says which argument is no tensor, after it failed because of that.

    NumPy's names for ``dim``, ``dims`` and ``keepdim`` are looked at then, too.
    """

    body = body_of(function)

    @functools.wraps(function)
    def op(*args: Any, **kwargs: Any) -> Any:
        try:
            return (function if interpreters else body)(*args, **kwargs)
        except Exception as error:
            if "unexpected keyword" in str(error) and not _NUMPYS_NAMES.keys().isdisjoint(kwargs):
                return function(*args, **_in_our_names(kwargs))
            refusal = refusal_of(function, error, args, kwargs, method)
            if refusal is error:
                raise
            raise refusal from None

    return cast(Op, op)


def several(op: str, tensors: Any) -> list[Tensor]:
    """A sequence of tensors as a list; one tensor, or anything but a sequence, is refused."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
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
            one_device(op, [t._expr.program for t in (first, *others) if t is not None])


# ops that compute in the type of ``out=``
_OUT_DECIDES = frozenset(("cumsum", "cumprod", "prod"))
_NUMPYS_NAMES = {"axis": "dim", "axes": "dims", "keepdims": "keepdim"}


def _in_our_names(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {_NUMPYS_NAMES.get(name, name): value for name, value in kwargs.items()}


def public(function: Op) -> Op:
    """An op as users call it: with NumPy's names (``axis`` for ``dim``) too, and ``out=``."""

    body = body_of(function)

    @functools.wraps(function)
    def op(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            try:
                return (function if interpreters else body)(*args)
            except (AttributeError, TypeError) as error:
                raise refusal_of(function, error, args) from None
        out = kwargs.pop("out", None)
        if out is not None and function.__name__ in _OUT_DECIDES:
            kwargs["dtype"] = type_for(kwargs.get("dtype"), out)
        if out is not None and interpreters:
            return _uncast(function, args, _in_our_names(kwargs), out)
        kwargs = _in_our_names(kwargs)
        try:
            result = function(*args, **kwargs)
        except AttributeError as error:
            raise refusal_of(function, error, args, kwargs) from None
        return put_into(result, out, function.__name__)

    return cast(Op, op)


def _uncast(function: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What is written with ``out=``, which autocast leaves alone."""
    before, state.in_op = state.in_op, True
    try:
        return put_into(function(*args, **kwargs), out, function.__name__)
    finally:
        state.in_op = before


def takes_out(function: Op) -> Op:
    """Say that ``out=`` is taken by the function of `lucid_gpu`, where the method takes none."""
    function.takes_out = True  # type: ignore[attr-defined]
    return function


def with_out(function: Op) -> Op:
    """A function that `takes_out` with ``out=``; any other as it is."""
    return public(function) if getattr(function, "takes_out", False) else function


def published(method: Op) -> Op:
    """A method as a function of `lucid_gpu`."""
    return with_out(guarded(method))


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
    parts = [into(r, o, name) for r, o in zip(result, out, strict=True)]
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
    split_with_sizes_copy linalg_cross"""
EXACT = frozenset(_EXACT.split())
_EXACT_TOGETHER = ("max", "min")  # of these, what gives indices beside the values
_JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "row_stack",
          "column_stack")  # fmt: skip
_REAL = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")


def into(result: Tensor, out: Tensor | None, name: str) -> Tensor:
    """Put a result where ``out=`` says."""
    if out is None:
        return result
    if name in EXACT and out.dtype is not result.dtype:
        raise RuntimeError(_other_type(result, out, name))
    if name in ("all", "any") and out.dtype.name not in ("bool", "uint8"):
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {out.dtype.name}")
    if name in _JOINS and result.dtype.category > out.dtype.category:
        raise TypeError(
            "torch.cat(): input types can't be cast to the desired output type "
            f"{out.dtype.name}, in {name}()"
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
    if result.is_sparse or out.is_sparse:
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
    if out._expr.program.shape != result._expr.program.shape:
        _resize(out, result, name)
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
    if name == "nonzero":
        return f"nonzero: Expected out tensor to have scalar type Long but got scalar type {actual}"
    if name == "frexp":
        part = "mantissa" if result.dtype.category == 2 else "exponent"
        return f"torch.frexp() expects {part} to have dtype {wanted} but got {actual}"
    return f"Expected out tensor to have dtype {wanted}, but got {actual} instead, in {name}()"


def type_for(dtype: Any, out: Tensor | None) -> Any:
    """The type of what a function that makes numbers computes: that of ``out``, where there is one.

    RuntimeError if both are given and differ.
    """
    if out is None:
        return dtype
    if dtype is not None and as_dtype(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {as_dtype(dtype).name} does not match dtype of out parameter ({out.dtype.name})"
        )
    return out.dtype


def shape_for(array: Any, out: Tensor | None) -> Any:
    """A vector in the shape of ``out``, where that has as many elements."""
    fits = out is not None and out.numel() == array.size
    return array.reshape(tuple(out.shape)) if fits else array  # type: ignore[union-attr]


def _resize(out: Any, result: Any, name: str) -> None:
    """Give ``out`` memory of the result's shape, as in PyTorch; a warning unless it is empty."""
    if result.dtype.category > out.dtype.category:
        raise RuntimeError(
            f"result type {result.dtype.name} can't be cast to the desired output type "
            f"{out.dtype.name} in {name}"
        )
    if out.numel():
        warn_user(
            "An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape "
            f"{list(result.shape)}. This behavior is deprecated, and in a future PyTorch release "
            "outputs will not be resized unless they have zero elements. You can explicitly reuse "
            "an out tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
        )
    out._take_sizes(tuple(result.shape))
