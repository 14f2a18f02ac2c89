"""Matrix products of every rank."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lucid_gpu.core import layout
from lucid_gpu.core.program import Program, Shape, derived, load_program, loads_of_type, spend
from lucid_gpu.core.value import Cell, Expr, LateCell
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, backend_of_array, cublaslt
from lucid_gpu.devices.background_matmul import BackgroundMatmul
from lucid_gpu.devices.copies import reshaped
from lucid_gpu.dtypes import bool as bool_type
from lucid_gpu.dtypes import dtype, unimplemented
from lucid_gpu.fusion.building import made_here, one_device
from lucid_gpu.fusion.saving import takes_none
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.launch.observers import library_call, observers
from lucid_gpu.ops.arguments import (
    put_into,
    require_one_dtype,
    require_tensor,
    require_tensors,
    takes_out,
)
from lucid_gpu.ops.elementwise import factors_in, in_old_order
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import columns_order, strides_of
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.ops.reductions import sum_to_shape
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import own
from lucid_gpu.tape import costly
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import is_grad_enabled, no_grad, state
from lucid_gpu.tape.overrides import declined
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor, _set, _tensor, from_array, is_foreign, of_kept


@op(autocast="lower")
def matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Matrix product, broadcasting over leading dimensions.

    Vectors count as a row on the left and as a column on the right. Two dtypes are an error, as in
    PyTorch.

    Parameters
    ----------
    input : Tensor, shape (..., n, k) or (k,)
    other : Tensor, shape (..., k, m) or (k,)

    Raises
    ------
    RuntimeError
        For 0-d operands, unequal inner extents, dtypes or devices.
    TypeError
        For anything but a tensor.
    """
    if out is not None:
        return put_into(matmul(input, other), out, "matmul")
    if type(other) is not Tensor or type(input) is not Tensor:
        if not isinstance(other, Tensor):
            if backend_of_array(other) is not None:
                return Tensor._matmul_of_arrays(input, other)
            kind = type(other).__name__
            raise TypeError(f"matmul(): argument 'other' must be Tensor, not {kind}")
        if input._is_sparse:
            return input.matmul(other)
        if other._is_sparse:
            return other.__rmatmul__(input)
    a, b = input, other
    _check(a, b)
    a_rank, b_rank = len(a._expr.shape), len(b._expr.shape)
    if a_rank == b_rank == 1:
        return _of_vectors(a, b)
    if a_rank == 1:
        a = a.unsqueeze(0)
    if b_rank == 1:
        b = b.unsqueeze(1)
    result = _product(a, b)
    if b_rank == 1:
        leads_back(result, [(0, 1), None])  # PyTorch's is an outer product
        result = result.squeeze(-1)
    if a_rank == 1:
        result = result.squeeze(-2)
    return own(result) if a_rank == 1 or b_rank == 1 else result


def _check(a: Tensor, b: Tensor) -> None:
    first, second = a._expr.program, b._expr.program
    left, right = a._expr.shape, b._expr.shape
    if not left or not right:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D"
        )
    if first.device is not second.device:
        one_device("matmul", (a._expr, b._expr))
    if first.dtype is not second.dtype or first.dtype is bool_type:
        _same_type(a, b)
    if left[-1] != right[-2 if len(right) > 1 else -1]:
        rows = f"{left[-2] if len(left) > 1 else 1}x{left[-1]}"
        columns = f"{right[-2]}x{right[-1]}" if len(right) > 1 else f"{right[0]}x1"
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows} and {columns}); matmul got shapes "
            f"{list(left)} and {list(right)}"
        )
    if left[:-2] != right[:-2]:
        broadcast_shapes([left[:-2], right[:-2]], "matmul")


def _same_type(a: Tensor, b: Tensor) -> None:
    d = a._expr.program.dtype
    if d is not b._expr.program.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != "
            f"{b.dtype.name}; convert one with .to(...)"
        )
    if d is bool_type:
        raise unimplemented("matmul", d, "; convert with .to(...)")


_AS_THEY_ARE = (Tensor, backend(CPU).xp.ndarray)  # but for CuPy's arrays


def _rows(x: Any) -> Any:
    """A batch of matrices, or an array of them, as one tall matrix."""
    if x.ndim == 2:
        return x
    shape = math.prod(x.shape[:-1]), x.shape[-1]
    return x.reshape(shape) if isinstance(x, _AS_THEY_ARE) else reshaped(x, shape)


def _as_factor(x: Tensor, array: Any, there: Any) -> Any:
    """The ``array`` of a tensor, no matrix, whose rows are multiplied by one: by one product."""
    told = observers or costly.active  # of matrices
    if told or array.ndim < 3 or x._expr.program.strided or not there.joins_rows:
        return _rows(array) if array.flags.c_contiguous else there.call("a copy", _rows, array)
    return array


def _multiply(
    where: device, x: Any, y: Any, d: dtype, name: str | None = "", out: Any = None
) -> Any:
    """The library's product of two arrays, for PyTorch's op ``name``; None where that is known."""
    if costly.active and name is not None:
        name = name or ("mm" if y.ndim == 2 else "bmm")
        return costly.run(name, where, partial(_multiply, where, x, y, d, None, out), (x, y))
    multiply = backend(where).matmul
    if observers:
        return library_call("matmul", where, lambda x, y: multiply(x, y, d, out), x, y)
    return multiply(x, y, d, out)


def _multiply_matrices(where: device, x: Any, y: Any, d: dtype) -> Any:
    """The product of two arrays of matrices."""
    if x.ndim > 2 and y.ndim == 2 and x.flags.c_contiguous:  # one product instead of a batch
        return _multiply(where, _rows(x), y, d).reshape(*x.shape[:-1], y.shape[-1])
    return _multiply(where, x, y, d)


@op
def _product(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.array, b.array
    left, right = a._expr.program, b._expr.program
    where, d, results = left.device, left.dtype, None
    if x.ndim == y.ndim == 2 and not (observers or costly.active):
        array = backend(where).matmul(x, y, d)
        results = _results.get((left, right)) or _keep_results(left, right)
    else:
        array = _multiply_matrices(where, x, y, d)
    result: Tensor = record(
        "MmBackward0" if x.ndim == y.ndim == 2 else "BmmBackward0",
        array,
        (a, b),
        _product_vjp,
        _crosswise(a, b),
        d,
        results=results,
        shapes=(a._expr.shape, b._expr.shape),
        gives_new=True,
    )
    if x.ndim == 2 < y.ndim and left.needs_grad:  # PyTorch's is one product of transposed matrices
        return leads_back(result, [_by_columns(a), columns_order(b)])
    if y.ndim == 2 and (left.strided or right.strided):
        first = _by_columns(a) if x.ndim == 2 else None
        return leads_back(result, [first, _by_columns(b)])
    return result


@op
def _of_vectors(a: Tensor, b: Tensor) -> Tensor:
    """The product of two vectors."""
    where, d = a._expr.program.device, a._expr.program.dtype
    array = _multiply(where, a.array.reshape(1, -1), b.array.reshape(-1, 1), d)
    result: Tensor = record(
        "DotBackward0", array.reshape(()), (a, b), _of_vectors_vjp, _crosswise(a, b), d
    )
    return result


def _of_vectors_vjp(node: Any, g: Tensor) -> Any:
    a, b = node.saved_values
    return None if b is None else g * _conj(b), None if a is None else g * _conj(a)


@jvp(_of_vectors_vjp)
def _of_vectors_jvp(call: Call) -> Any:
    return call.bilinear(_of_vectors)


@batching(_of_vectors)
def _of_vectors_batched(level: Batch, f: Any, a: Tensor, b: Tensor) -> Any:
    rows, columns = level.aligned(a, 1).unsqueeze(-2), level.aligned(b, 1).unsqueeze(-1)
    return level.wrap(_product(rows, columns).squeeze(-1).squeeze(-1))


def _crosswise(a: Tensor, b: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What a product saves of its operands: each is read for the other's gradient."""
    saved = []
    for operand, other in ((a, b._expr), (b, a._expr)):
        wanted = other.program.needs_grad
        if wanted and other.program.is_load:
            wanted = not takes_none(other.leaves[0])
        saved.append(operand if wanted else None)
    return saved[0], saved[1]


def _by_columns(x: Tensor) -> tuple[int, int] | None:
    """The order of a matrix that lies column by column, as PyTorch's gradient of it does then."""
    steps = strides_of(x)
    return (1, 0) if steps[0] == 1 and steps[1] == x._expr.shape[0] else None


def _keep_results(left: Program, right: Program) -> tuple[Program, Program]:
    """The programs of a product of two matrices, for the next one."""
    results = loads_of_type(left.dtype, (left.axes[0], right.axes[1]), left.device)
    _results[left, right] = results
    return results


_results: dict[tuple[Program, Program], tuple[Program, Program]] = derived(
    "products of two matrices, not recorded and recorded"
)


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x._expr.program.dtype.category == 3 else x


def _product_vjp(node: Any, g: Tensor) -> Any:
    a, b = node.saved_values
    left, right = node.shapes
    if not (is_grad_enabled() or open_levels):
        return _product_gradients(node, g, a, b)
    g_a = g_b = None
    if b is not None:
        g_a = sum_to_shape(_product(g, _conj(b).mT), left)
    if a is not None:
        if len(right) == 2 and len(left) > 2:  # a weight: the batch is part of the sum
            a, g = _rows(a), _rows(g)
        g_b = sum_to_shape(_product(_conj(a).mT, g), right)
    return g_a, g_b


@jvp(_product_vjp)
def _product_jvp(call: Call) -> Any:
    return call.bilinear(_product)


@batching(_product)
def _product_batched(level: Batch, f: Any, a: Tensor, b: Tensor) -> Any:
    if not level.holds(a) and a.ndim == b.ndim == 2 and b.shape[-1] == 1:
        rows = level.value(b).squeeze(-1)  # a vector an example: one product of matrices
        return level.wrap(f(rows, a.mT).unsqueeze(-1))
    if not level.holds(b) and b.ndim == 2:
        return level.wrap(f(level.value(a), b))
    rank = max(a.ndim, b.ndim)
    return level.wrap(f(level.aligned(a, rank), level.aligned(b, rank)))


def _product_gradients(node: Any, g: Tensor, a: Tensor | None, b: Tensor | None) -> list[Any]:
    """The same of arrays, where nobody asks for the gradients' gradients."""
    cotangents = g.array
    where, d = g._expr.program.device, g._expr.program.dtype
    left, right = node.shapes
    if costly.active:  # which may keep what it sees
        node.gives_new = False
    gradients: list[Any] = [None, None]
    if b is not None:
        array = _multiply_matrices(where, cotangents, _conj(b).array.swapaxes(-1, -2), d)
        gradients[0] = _summed(array, left, where, d)
    if a is not None:
        rows = _conj(a).array
        if len(right) == 2 and len(left) > 2:  # a weight: the batch is part of the sum
            rows, cotangents = _rows(rows), _rows(cotangents)
        array = _multiply_matrices(where, rows.swapaxes(-1, -2), cotangents, d)
        gradients[1] = _summed(array, right, where, d)
    return gradients


def _summed(array: Any, shape: tuple[int, ...], where: device, d: dtype) -> Tensor:
    gradient = from_array(array, d, where)
    return gradient if array.shape == shape else sum_to_shape(gradient, shape)


@op
def product_as(a: Tensor, b: Tensor, d: dtype) -> Tensor:
    """A product given as ``d``, of matrices one of which holds 16-bit floats, the other float32.

    Or both hold 16-bit floats and ``d`` is float32. Sums are float32, and nothing is rounded but
    what the device multiplies in 16 bits and a result of 16 bits. Its gradients are such products.
    """
    left, right = a._expr.program, b._expr.program
    where, low = left.device, _narrower(left.dtype, right.dtype)
    array = _multiply_as(where, _factor(a, low), _factor(b, low), low, d)
    result: Tensor = record(
        "BmmBackward0",
        array,
        (a, b),
        _product_as_vjp,
        _crosswise(a, b),
        d,
        shapes=(a._expr.shape, b._expr.shape),
        kinds=(left.dtype, right.dtype),
        kind=d,
    )
    return result


def unrounded(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` for an op that adds it to something: of 16-bit floats in float32.

    So the sum is rounded once, as the libraries that PyTorch calls round it.
    """
    d = a.dtype
    if d.compute is d or b.dtype is not d or a._is_sparse or b._is_sparse:
        return matmul(a, b)
    _check(a, b)
    if b.ndim == 1:
        return product_as(a, b.unsqueeze(1), d.compute).squeeze(-1)
    return product_as(a, b, d.compute)


def _narrower(left: dtype, right: dtype) -> dtype:
    return right if left.compute is left else left


def _factor(x: Tensor, low: dtype) -> Any:
    """What is multiplied, rounded where 16 bits are multiplied, by the kernel that computes it."""
    if x.dtype is not low and backend(x.device).multiplies_16_bits:
        with no_grad():
            x = x.to(low)
    return x.array


def _multiply_as(where: device, x: Any, y: Any, low: dtype, d: dtype) -> Any:
    """The product of arrays, both rounded to ``low`` or not, in memory of type ``d``."""
    lead = broadcast_shapes([x.shape[:-2], y.shape[:-2]], "matmul")
    out = backend(where).empty((*lead, x.shape[-2], y.shape[-1]), d, where)
    return _multiply(where, x, y, low, out=out)


def _product_as_vjp(node: Any, g: Tensor) -> Any:
    a, b = node.saved_values
    (left, right), (kind_a, kind_b) = node.shapes, node.kinds
    both = a is not None and b is not None
    if both and not (is_grad_enabled() or open_levels):
        g = _rounded_once(g, _narrower(kind_a, kind_b))
    return (
        None if b is None else _product_summed(g, b.mT, kind_a, left),
        None if a is None else _product_summed(a.mT, g, kind_b, right),
    )


def _product_summed(a: Tensor, b: Tensor, d: dtype, shape: tuple[int, ...]) -> Tensor:
    """A product, summed over what was broadcast before it is rounded."""
    if broadcast_shapes([a.shape[:-2], b.shape[:-2]], "matmul") == shape[:-2]:
        return product_as(a, b, d)
    return sum_to_shape(product_as(a, b, d.compute), shape).to(d)


def _rounded_once(g: Tensor, low: dtype) -> Tensor:
    """A cotangent that two products read, as both multiply it."""
    if g.dtype is not low and backend(g.device).multiplies_16_bits:
        g = from_array(_factor(g, low), low, g.device)
    return g


@jvp(_product_as_vjp)
def _product_as_jvp(call: Call) -> Any:
    return call.bilinear(product_as, "kind")


@batching(product_as)
def _product_as_batched(level: Batch, f: Any, a: Tensor, b: Tensor, d: dtype) -> Any:
    rank = max(a.ndim, b.ndim)
    return level.wrap(f(level.aligned(a, rank), level.aligned(b, rank), d))


OF_LINEAR = 400  # bytes, about, of what follows


class Linear(NamedTuple):
    """What a linear layer gives of values of two programs.

    ``shape`` is the result's. ``results`` are its programs, not recorded and recorded, and
    ``gradients`` those of the gradients of input and weight; None for integers.
    """

    shape: tuple[int, ...]
    results: tuple[Program, Program] | None
    gradients: tuple[Program, Program] | None


@op(autocast="lower")
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``input @ weight.T + bias``, whose weight gradient comes out in the weight's own layout.

    Parameters
    ----------
    input : Tensor, shape (*, in_features)
    weight : Tensor, shape (out_features, in_features) or (in_features,)
    bias : Tensor, shape (out_features,) or (), optional
    out : Tensor, optional
        What the result is written into.

    Returns
    -------
    Tensor, shape (*, out_features) or (*)

    Raises
    ------
    RuntimeError
        For shapes, types or devices that do not fit each other.
    TypeError
        For anything but tensors.
    """
    if out is not None:
        return put_into(linear(input, weight, bias), out, "linear")
    try:
        a, b = input._expr.program, weight._expr.program
    except AttributeError:
        require_tensors("linear", input=input, weight=weight)
        raise
    shapes = input._expr.shape, weight._expr.shape
    key = (a, b, *shapes)
    known = _linears.get(key)
    if known is None:
        if len(shapes[1]) == 1:
            product = input @ weight
            return product if bias is None else product + bias
        known = _linears[key] = _linear_of(input, weight)
        spend(OF_LINEAR)
    where = a.device
    if bias is not None:
        if isinstance(bias, Tensor) and bias._expr.program.dtype is not a.dtype:
            require_one_dtype("linear: self and mat2 must have the same dtype", bias, input)
        if cublaslt.preferred and not costly.active:
            biased = _biased(where, input, weight, bias, known)
            if biased is not None:
                return biased
    there = backend(where)
    x, w = input.array, weight.array.T
    if x.ndim != 2:
        x = _as_factor(input, x, there)
    if observers or costly.active:
        array = _multiply(where, x, w, a.dtype, "mm" if bias is None else "addmm")
    else:
        array = there.matmul(x, w, a.dtype)
    result: Tensor = record(
        "LinearBackward0",
        array if array.ndim == len(known.shape) else array.reshape(known.shape),
        (input, weight),
        _linear_vjp,
        _crosswise(input, weight),
        a.dtype,
        results=known.results,
        known=known,
        gives_new=True,
    )
    if input._expr.program.strided or weight._expr.program.strided:  # computed by now
        by_rows = strides_of(weight) == layout.row_major(shapes[1])
        of_input = _by_columns(input) if len(shapes[0]) == 2 else None
        leads_back(result, [of_input, None if by_rows else (1, 0)])
    return result if bias is None else result + bias


def _linear_of(input: Tensor, weight: Tensor) -> Linear:
    """What `linear` gives of values like these two, which fit each other."""
    a, b = input._expr.program, weight._expr.program
    left, right = input._expr.shape, weight._expr.shape
    if len(right) != 2 or not left or left[-1] != right[1]:
        rows, columns = math.prod(left[:-1]), left[-1] if left else 1
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{columns} and "
            f"{weight.shape[-1]}x{weight.shape[0]}); linear got input of shape "
            f"{list(left)} and weight of shape {list(right)}"
        )
    one_device("linear", (input._expr, weight._expr))
    if a.dtype is not b.dtype or a.dtype is bool_type:
        _same_type(input, weight)
    shape, d = (*left[:-1], right[0]), a.dtype
    if d.category < 2:
        return Linear(shape, None, None)
    of_input, of_weight = [load_program(d, s, False, False, a.device) for s in (left, right)]
    return Linear(shape, loads_of_type(d, shape, a.device), (of_input, of_weight))


_linears: dict[tuple[Program, Program, Shape, Shape], Linear] = derived("linear layers")


def _linear_vjp(node: Any, g: Tensor) -> Any:
    x, w = node.saved_values
    if not (state.grad or open_levels):
        return _linear_gradients(node, g, x, w)
    g_x = g_w = None
    if w is not None:
        one_row = g.ndim == 1
        g_x = _product(g.unsqueeze(0) if one_row else g, _conj(w))
        g_x = g_x.squeeze(0) if one_row else g_x
    if x is not None:
        g_w = _product(_rows(g).mT, _conj(_rows(x)))
    return g_x, g_w


@jvp(_linear_vjp)
def _linear_jvp(call: Call) -> Any:
    return call.bilinear(linear)


@batching(linear)
def _linear_batched(
    level: Batch, f: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Any = None
) -> Any:
    if out is not None:
        return put_into(linear(x, weight, bias), out, "linear")
    if weight.ndim == 1:
        product = x @ weight
        return product if bias is None else product + bias
    if level.holds(weight):
        product = x @ weight.mT
    elif level.holds(x):
        product = level.wrap(f(level.value(x), weight))
    else:
        product = f(x, weight)
    return product if bias is None else product + bias


def _biased(
    where: device, input: Tensor, weight: Tensor, bias: Tensor, known: Linear
) -> Tensor | None:
    """A linear layer whose product adds the bias; None where cuBLASLt does not do that."""
    a, c = input._expr.program, bias._expr.program
    shape, rows = weight._expr.shape, input._expr.shape
    if bias._expr.shape != shape[:1] or c.dtype is not a.dtype or c.device is not where:
        return None
    multiply = partial(backend(where).matmul_with_vector, d=a.dtype, vector=bias.array, sums=False)
    array = _multiply_with(where, multiply, _rows(input.array), weight.array.T)
    if array is None:
        return None
    result: Tensor = record(
        "AddmmBackward0",
        array if len(rows) == 2 else array.reshape(*rows[:-1], shape[0]),
        (input, weight, bias),
        _biased_vjp,
        _crosswise(input, weight),
        a.dtype,
        known=known,
    )
    return result


def _biased_vjp(node: Any, g: Tensor) -> Any:
    x, w = node.saved_values
    if not node.needs_input_grad[2]:
        return (*_linear_vjp(node, g), None)
    plain = not (state.grad or open_levels or costly.active)
    if x is not None and plain:
        program = g._expr.program
        where, d = program.device, program.dtype
        sums = backend(where).empty(g._expr.shape[-1:], d, where)
        multiply = partial(backend(where).matmul_with_vector, d=d, vector=sums, sums=True)
        g_w = _multiply_with(where, multiply, _rows(g.array).T, _rows(x.array))
        if g_w is not None:
            g_x, _ = _linear_gradients(node, g, None, w)
            return g_x, from_array(g_w, d, where), from_array(sums, d, where)
    return (*_linear_vjp(node, g), sum_to_shape(g, g.shape[-1:]))


def _multiply_with(where: device, multiply: Any, x: Any, y: Any) -> Any:
    """A product with a vector, None where it is not taken; told to observers where it is."""
    array = multiply(x, y)
    if observers and array is not None:
        library_call("matmul", where, lambda x, y: array, x, y)
    return array


def _linear_gradients(node: Any, g: Tensor, x: Tensor | None, w: Tensor | None) -> list[Any]:
    """The same of arrays, where nobody asks for the gradients' gradients."""
    program = g._expr.program
    where, d = program.device, program.dtype
    there, is_complex = backend(where), d.category == 3
    cotangents = g.array
    if cotangents.ndim != 2:
        cotangents = _as_factor(g, cotangents, there)
    gradients: list[Any] = [None, None]
    background = rows = None
    known: Linear = node.known
    assert known.gradients is not None  # only floats have them
    of_input, of_weight = known.gradients
    if d is not of_input.dtype or g._expr.shape != known.shape:  # who calls `grad_fn` may err
        raise RuntimeError(
            f"{node.name()}: expected a gradient of shape {list(known.shape)} and type "
            f"{of_input.dtype.name}, got {list(g._expr.shape)} and {d.name}"
        )
    watched = observers or costly.active
    if costly.active:  # which may keep what it sees
        node.gives_new = False
    multiply = partial(_multiply, where) if watched else there.matmul
    if x is not None:
        x = _conj(x) if is_complex else x
        rows = x.array
        if rows.ndim != 2:
            rows = _as_factor(x, rows, there)
        if w is not None and state.task is not None and not watched:
            background = there.matmul_in_background(cotangents, rows, d)
    if w is not None:
        beside = multiply if background is None else there.matmul_beside
        array = beside(cotangents, (_conj(w) if is_complex else w).array, d)
        shape = (*known.shape[:-1], array.shape[-1])
        if array.ndim != len(shape):
            array = array.reshape(shape)
        gradients[0] = of_kept(of_input, array)
    if background is not None:
        state.task.background.append(background)
        gradients[1] = _tensor(_of_background(background, d))
    elif rows is not None:
        if watched:
            array = multiply(cotangents.T, rows, d)
        else:
            array = there.matmul_of_rows(cotangents, rows, d)
        gradients[1] = of_kept(of_weight, array)
    return gradients


class BackgroundCell(LateCell):
    """A leaf whose array another thread still writes: who reads it waits."""

    def __init__(self, product: BackgroundMatmul, node: Any = None, output: int = 0) -> None:
        self.source = product
        self.node = node
        self.output = output
        self.variable, self.version = None, 0

    def fill(self) -> None:
        product = self.source
        if product is not None:  # else another thread was faster
            product.end()
            self.array, self.source = product.out, None

    def _beside(self, node: Any, output: int) -> Cell:
        product = self.source
        if product is None:
            return Cell(self.array, node, output)
        return BackgroundCell(product, node, output)


def _of_background(product: BackgroundMatmul, d: dtype) -> Expr:
    """The expression of a product's result."""
    shape = product.out.shape
    program = load_program(d, shape, False, False, CPU, made_here())
    return Expr(program, (BackgroundCell(product),), None, shape)


@op(autocast="lower")
def mm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Product of two matrices, (n, k) and (k, m).

    RuntimeError for another number of dimensions, inner extents or types that differ.
    """
    _check_matrices(input, mat2)
    return matmul(input, mat2, out=out)


def _check_matrices(input: Tensor, mat2: Tensor) -> None:
    if not isinstance(mat2, Tensor):
        require_tensor("mm", "mat2", 2, mat2)
    if not len(input._expr.shape) == len(mat2._expr.shape) == 2:
        raise RuntimeError(
            f"mm(): expected 2-D tensors, got shapes {list(input.shape)} and {list(mat2.shape)}"
        )


@op(autocast="lower")
def bmm(input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """Products of matrix pairs, (b, n, k) and (b, k, m).

    RuntimeError for another number of dimensions, batches, inner extents or types that differ.
    """
    left, right = input._expr.shape, mat2._expr.shape
    if not len(left) == len(right) == 3 or left[0] != right[0]:
        raise RuntimeError(
            f"bmm(): expected two batches (b, n, k) and (b, k, m), got shapes "
            f"{list(left)} and {list(right)}"
        )
    return matmul(input, mat2, out=out)


@op(autocast={"cuda": "lower"})
@takes_out
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix (n, k) times vector (k,)."""
    return matmul(input, vec)


@op(autocast={"cuda": "promote"})
@takes_out
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Inner product of two vectors.

    RuntimeError for anything but vectors of one length.
    """
    require_tensor("dot", "tensor", 2, tensor)
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype is not tensor.dtype:
        raise RuntimeError(
            "dot : expected both vectors to have same dtype, but found "
            f"{input.dtype.type_name} and {tensor.dtype.type_name}"
        )
    if input.shape != tensor.shape:
        n, m = input.shape[0], tensor.shape[0]
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same "
            f"number of elements, but got {n} and {m} elements respectively"
        )
    return matmul(input, tensor)


@op(autocast={"cuda": "lower"})
@takes_out
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors' elements.

    RuntimeError for anything but a vector.
    """
    for name, vector in (("self", input), ("vec2", vec2)):
        rank = len(vector._expr.shape)
        if rank != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {rank}-D")
    return input.unsqueeze(1) * vec2


@op(autocast="lower")
@takes_out
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *old: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``; ``input`` broadcasts to the product of matrices.

    RuntimeError for shapes or types that do not fit each other.
    """
    if old:
        return in_old_order(addmm, (input, mat1, mat2, *old), beta, alpha)
    require_one_dtype("addmm: self and mat2 must have the same dtype", input, mat2)
    if cublaslt.preferred and beta == alpha == 1 and _is_linear(input, mat1, mat2):
        return linear(mat1, mat2.t(), input)
    d = mat1.dtype
    multiply: Callable[[Tensor, Tensor], Tensor] = mm
    if d.compute is not d:
        _check_matrices(mat1, mat2)
        multiply, input = unrounded, in_type(input, d.compute)
    if costly.active:
        with costly.named("addmm"):
            product = multiply(mat1, mat2)
    else:
        product = multiply(mat1, mat2)
    beta, alpha = factors_in(product.dtype, beta, alpha)
    total = product if alpha == 1 else product * alpha
    if beta == 0:
        return in_type(plus_nothing(total, input), d)
    return lay(in_type((input if beta == 1 else input * beta) + total, d), None)


def in_type(x: Tensor, d: dtype) -> Tensor:
    """A tensor converted where it has another type."""
    return x if x._expr.program.dtype is d else x.to(d)


def plus_nothing(total: Tensor, input: Tensor) -> Tensor:
    """A total without an operand that is multiplied by 0, and may be NaN: its gradient is zeros."""
    if not (input.requires_grad and is_grad_enabled()):
        return total
    zeros = input.masked_fill(input.new_ones((), dtype=bool_type), 0)
    return total + zeros


def _is_linear(bias: Tensor, x: Tensor, y: Tensor) -> bool:
    fits = x.ndim == y.ndim == 2 and x.shape[1:] == y.shape[:1]
    return fits and bool(bias.shape == y.shape[1:])


METHODS = (matmul, mm, bmm, mv, dot, outer, addmm)
attach(Tensor, *METHODS)


@op(autocast={"cuda": "promote"})
def _dot(self: Tensor, tensor: Any) -> Tensor:
    """Inner product of two vectors; of matrices and arrays, `numpy.dot`."""
    ours = isinstance(tensor, Tensor)
    if (ours and self.ndim == tensor.ndim == 1) or not (
        ours or backend_of_array(tensor) is not None
    ):
        return dot(self, tensor)
    result: Tensor = self._dot_of_arrays(tensor)
    return result


_set("dot", _dot)


def _rmatmul(self: Tensor, other: Any) -> Any:
    if backend_of_array(other) is not None:
        product: Tensor = Tensor._matmul_of_arrays(other, self)
        return product
    if not hasattr(other, "__len__") or isinstance(other, (str, bytes)):
        return declined("__rmatmul__", self, other)
    from lucid_gpu.ops.creation import as_tensor

    return matmul(as_tensor(other), self)


def _matmul(self: Tensor, other: Any) -> Any:
    """``self @ other``."""
    if not isinstance(other, Tensor) and is_foreign("matmul", other):
        return declined("__matmul__", self, other)
    return matmul(self, other)


_set("__matmul__", _matmul)
_set("__rmatmul__", _rmatmul)
