"""Every op has sample calls, and whatever holds for all ops is checked of each of them.

The calls are lines of `tests/ops/samples.py`. An op without one fails here.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.func import jvp, vmap
from lucid_gpu.fusion import eager
from lucid_gpu.tape.door import body_of, op_of
from tests.ops.samples import NOT_SAMPLED, ROWS, Drawn, Fixed, Row, draw, placeholders
from tests.oracle import torch_module

SPACES = ("linalg", "fft", "special", "nn.functional", "Tensor")

# (test, row) -> what is wrong. These must fail: who repairs one takes out its line.
CELL = "PyTorch does not cast it on a CPU"
INSIDE = "PyTorch casts the products that it is made of"
VIEW_WRITTEN = "a write to a view is a node that PyTorch lets go backward once"
KNOWN: dict[tuple[str, str], str] = {
    ("autocast", "gru"): CELL,
    ("autocast", "gru_cell"): CELL,
    ("autocast", "lstm_cell"): CELL,
    ("autocast", "nn.functional.affine_grid"): INSIDE,
    ("autocast", "corrcoef"): INSIDE,
    ("autocast", "cov"): INSIDE,
    ("autocast", "linalg.pinv"): INSIDE,
    ("autocast", "lobpcg"): INSIDE,
    **{
        (
            "second_backward",
            f"fft.{name}",
        ): "PyTorch saves the operand, whose sizes its formula reads"
        for name in ("fft-2", "ihfft", "ihfft2", "ihfftn", "rfft", "rfft2", "rfftn")
    },
    ("second_backward", "Tensor.fill_diagonal_"): VIEW_WRITTEN,
    ("second_backward", "Tensor.__setitem__"): VIEW_WRITTEN,
    ("types-int64", "rnn_tanh_cell"): "integers are refused, where PyTorch makes them real",
}
# What is computed here of types that PyTorch refuses.
WIDER = {
    "int64": """cholesky_solve logaddexp2 max_pool1d prelu stft stft-2
        nn.functional.embedding_bag nn.functional.fold nn.functional.gaussian_nll_loss
        nn.functional.grid_sample nn.functional.max_unpool1d
        nn.functional.max_unpool2d nn.functional.max_unpool3d nn.functional.unfold""",
    "bool": """cholesky_solve conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d linalg.vander logaddexp2 mvlgamma prelu stft stft-2 triangular_solve
        nn.functional.embedding_bag nn.functional.grid_sample
        nn.functional.local_response_norm nn.functional.max_unpool1d nn.functional.max_unpool2d
        nn.functional.max_unpool3d nn.functional.pad-2""",
}
ROUNDED = {"rtol": 2e-6, "atol": 1e-7}  # of float32
SLOW = {("gradcheck", name) for name in ("lstm", "gru", "lstm_cell")}


# --- calls ----------------------------------------------------------------------------------------


def found(module: Any, name: str) -> Any:
    """What a dotted name means in a module."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def arrays_of(row: Row, again: int = 0) -> list[Any]:
    """The numbers of a row, one array a placeholder."""
    wanted = placeholders((*row.args, *row.kwargs.values()))
    return [draw(row.name, place, drawn, again) for place, drawn in enumerate(wanted)]


def fixed_tensor(wanted: Fixed, module: Any, tensors: list[Any]) -> Any:
    """A tensor of the row's values; floats are as precise as the tensors that were drawn."""
    if wanted.dtype:
        return module.tensor(wanted.values, dtype=getattr(module, wanted.dtype))
    tensor = module.tensor(wanted.values)
    double = not tensors or tensors[0].dtype in (module.float64, module.complex128)
    return tensor.double() if tensor.is_floating_point() and double else tensor


def arguments(row: Row, module: Any, tensors: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a row's call, with tensors in the places of placeholders."""
    given = iter(tensors)

    def filled(value: Any) -> Any:
        if isinstance(value, Drawn):
            return next(given)
        if isinstance(value, Fixed):
            return fixed_tensor(value, module, tensors)
        if isinstance(value, (list, tuple)):
            return type(value)(filled(part) for part in value)
        return value

    args = [filled(value) for value in row.args]
    return args, {name: filled(value) for name, value in row.kwargs.items()}


def writes(row: Row) -> bool:
    return row.name.endswith("_") or row.name == "Tensor.__setitem__"


def called(row: Row, module: Any, tensors: list[Any]) -> Any:
    """What a row's call gives."""
    args, kwargs = arguments(row, module, tensors)
    if writes(row):
        args[0] = args[0].clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = found(module, row.name)(*args, **kwargs)
    return row.of(args[0] if result is None else result)


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def tensors_in(result: Any) -> list[Any]:
    return [part for part in parts(result) if hasattr(part, "requires_grad")]


def is_inexact(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def host(value: Any) -> Any:
    """A result as NumPy has it."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    return np.asarray(value.detach().resolve_conj().cpu().numpy())


def leaves(module: Any, arrays: list[Any]) -> list[Any]:
    return [module.tensor(array).requires_grad_() for array in arrays]


def weighted(module: Any, results: list[Any], seed: int = 7) -> Any:
    """A real number of differentiable results, with random weights."""
    rng, total = np.random.default_rng(seed), None
    for result in results:
        if not result.requires_grad:
            continue
        sides = [result.real, result.imag] if result.dtype.is_complex else [result]
        for side in sides:
            weights = module.tensor(rng.standard_normal(tuple(side.shape)))
            part = (side * weights.to(side.dtype)).sum()
            total = part if total is None else total + part
    return total


def gradients(module: Any, results: list[Any], inputs: list[Any]) -> list[Any]:
    """The gradients of a weighted sum of results; zeros where there is none."""
    total = weighted(module, results)
    if total is None or not inputs:
        return []
    given = module.autograd.grad(total, inputs, allow_unused=True)
    return [np.zeros(tuple(x.shape)) if g is None else host(g) for x, g in zip(inputs, given)]


def close(got: Any, expected: Any, what: str = "", rtol: float = 1e-7, atol: float = 1e-9) -> None:
    got, expected = host(got), host(expected)
    assert got.shape == expected.shape, what
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=what)


def kind(tensor: Any) -> str:
    return str(getattr(tensor, "dtype", type(tensor))).rpartition(".")[2]


# --- rows -----------------------------------------------------------------------------------------


def numbered(rows: list[Row]) -> dict[str, Row]:
    """Rows by name; the second of a name is called ``name-2``."""
    found: dict[str, Row] = {}
    for row in rows:
        earlier = sum(known.name == row.name for known in found.values())
        found[f"{row.name}-{earlier + 1}" if earlier else row.name] = row
    return found


NUMBERED = numbered(ROWS)


def marked(test: str, name: str, *values: Any) -> Any:
    """A case of a test of a row."""
    reason = KNOWN.get((test, name))
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    marks += [pytest.mark.slow] if (test, name) in SLOW else []
    return pytest.param(*values, id="-".join([name, *map(str, values[1:])]), marks=marks)


def rows_for(test: str, wanted: Callable[[Row], bool] = lambda row: True) -> Any:
    """Parametrize a test by the rows that it applies to."""
    rows = {name: row for name, row in NUMBERED.items() if test not in row.reasons and wanted(row)}
    return pytest.mark.parametrize("row", [marked(test, name, row) for name, row in rows.items()])


def drawn(row: Row) -> list[Drawn]:
    return list(placeholders((*row.args, *row.kwargs.values())))


def has_tensors(row: Row) -> bool:
    return bool(drawn(row))


def public_names() -> Iterator[str]:
    """Names of `lucid_gpu`, of its folders of functions, and of methods."""
    for space in ("", *SPACES):
        owner = found(lucid_gpu, space) if space else lucid_gpu
        for name in dir(owner):
            if not name.startswith("_") or (space == "Tensor" and name.endswith("__")):
                yield f"{space}.{name}" if space else name


@functools.cache
def ops_by_name() -> dict[str, Any]:
    """The op of each public name that calls one."""
    listed = {}
    for name in public_names():
        function = found(lucid_gpu, name)
        if inspect.isroutine(function) and op_of(function) is not None:
            listed[name] = op_of(function)
    return listed


def test_every_op_has_a_sample() -> None:
    ops = ops_by_name()
    named = {row.name for row in ROWS} | set(NOT_SAMPLED)
    sampled = {body_of(ops[name]) for name in named if name in ops}
    missing = sorted(name for name, op in ops.items() if body_of(op) not in sampled)
    assert missing == [], "each needs a line in tests/ops/samples.py"


def test_every_line_is_of_an_op() -> None:
    named = {row.name for row in ROWS} | set(NOT_SAMPLED)
    assert sorted(named - set(ops_by_name())) == []
    assert {name for _, name in KNOWN} <= set(NUMBERED)


# --- values and gradients -------------------------------------------------------------------------


def second_backward(row: Row, module: Any) -> str | None:
    """What a backward after a backward says; None where there is no gradient."""
    inputs = leaves(module, arrays_of(row))
    results = [part for part in tensors_in(called(row, module, inputs)) if part.requires_grad]
    if not results:
        return None
    ones = [module.ones(tuple(part.shape), dtype=part.dtype) for part in results]
    module.autograd.backward(results, ones)
    try:
        module.autograd.backward(results, ones)
    except RuntimeError as error:
        return str(error)
    return "nothing"


@pytest.mark.each_value
@pytest.mark.parametrize("eagerly", [False, True])
@rows_for("second_backward", lambda row: has_tensors(row) and "gradients" not in row.reasons)
def test_a_second_backward_is_refused_where_torch_refuses_it(row: Row, eagerly: bool) -> None:
    expected = second_backward(row, torch_module())
    with eager(eagerly):
        assert second_backward(row, lucid_gpu) == expected


@rows_for("values")
def test_values_and_gradients_are_those_of_torch(row: Row) -> None:
    torch, arrays = torch_module(), arrays_of(row)
    theirs, mine = leaves(torch, arrays), leaves(lucid_gpu, arrays)
    expected, got = called(row, torch, theirs), called(row, lucid_gpu, mine)
    assert [kind(part) for part in parts(got)] == [kind(part) for part in parts(expected)]
    for a, b in zip(parts(got), parts(expected), strict=True):
        close(a, b, "value", **(ROUNDED if kind(b) == "float32" else {}))
    if "gradients" in row.reasons:
        return
    wanted = [part.requires_grad for part in tensors_in(expected)]
    assert [part.requires_grad for part in tensors_in(got)] == wanted
    slopes = gradients(torch, tensors_in(expected), theirs)
    for a, b in zip(gradients(lucid_gpu, tensors_in(got), mine), slopes, strict=True):
        close(a, b, "gradient", rtol=1e-6, atol=1e-8)


def results_of(row: Row) -> Callable[..., tuple[Any, ...]]:
    """A row's call as a function of its tensors."""
    return lambda *tensors: tuple(tensors_in(called(row, lucid_gpu, list(tensors))))


def smooth(row: Row) -> Callable[..., tuple[Any, ...]] | None:
    """A row's call with those results that have gradients; None if there are none."""
    tensors = leaves(lucid_gpu, arrays_of(row))
    kept = [place for place, x in enumerate(results_of(row)(*tensors)) if x.requires_grad]
    if not kept:
        return None
    return lambda *tensors: tuple(results_of(row)(*tensors)[place] for place in kept)


@rows_for("gradcheck", has_tensors)
def test_first_and_second_gradients_are_those_of_differences(row: Row) -> None:
    function = smooth(row)
    if function is None:
        return
    inputs = leaves(lucid_gpu, arrays_of(row))
    assert gradcheck(function, inputs, fast_mode=True)
    if "twice" not in row.reasons:
        assert gradgradcheck(function, inputs, fast_mode=True)


@rows_for("forward", has_tensors)
def test_tangents_are_those_of_gradients(row: Row) -> None:
    function = smooth(row)
    if function is None:
        return
    arrays = arrays_of(row)
    directions = [lucid_gpu.tensor(_like(a, seed)) for seed, a in enumerate(arrays)]
    inputs = [lucid_gpu.tensor(a) for a in arrays]
    tangents = jvp(function, tuple(inputs), tuple(directions))[1]
    inputs = leaves(lucid_gpu, arrays)
    slopes = gradients(lucid_gpu, list(function(*inputs)), inputs)
    expected = sum(np.vdot(g, host(v)).real for g, v in zip(slopes, directions))
    pushed = weighted(lucid_gpu, [x.detach().requires_grad_() for x in tangents])
    close(pushed, expected, rtol=1e-6, atol=1e-8)


def _like(array: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(array.shape)
    return numbers + 1j * rng.standard_normal(array.shape) if np.iscomplexobj(array) else numbers


# --- layouts, vmap, autocast ----------------------------------------------------------------------


def transposed(array: Any) -> Any:
    return lucid_gpu.tensor(array.T.copy()).permute(tuple(reversed(range(array.ndim))))


def stepped(array: Any) -> Any:
    wide = np.repeat(array, 2, -1) if array.ndim else array
    return lucid_gpu.tensor(wide)[..., ::2] if array.ndim else lucid_gpu.tensor(wide)


def expanded(array: Any) -> Any:
    first = lucid_gpu.tensor(array[:1].copy()) if array.ndim else lucid_gpu.tensor(array)
    return first.expand(array.shape)


@pytest.mark.each_value
@pytest.mark.parametrize("layout", [transposed, stepped, expanded])
@rows_for("strides", has_tensors)
def test_layouts_do_not_matter(row: Row, layout: Callable[[Any], Any]) -> None:
    if layout is expanded and any(
        d.domain not in ("normal", "positive", "unit") for d in drawn(row)
    ):
        return  # equal rows are not in its domain
    if layout is expanded and "expanded" in row.reasons:
        return
    laid = [layout(array) for array in arrays_of(row)]
    plain = [lucid_gpu.tensor(host(x).copy()).requires_grad_() for x in laid]
    laid = [x.requires_grad_() for x in laid]
    got, expected = results_of(row)(*laid), results_of(row)(*plain)
    for a, b in zip(got, expected, strict=True):
        close(a, b, "value")
    slopes = gradients(lucid_gpu, list(expected), plain)
    for a, b in zip(gradients(lucid_gpu, list(got), laid), slopes, strict=True):
        close(a, b, "gradient", rtol=1e-6, atol=1e-8)


def batched_places(row: Row) -> Iterator[list[bool]]:
    """Which tensors of a row have a dimension of examples: all, then all but one."""
    count = len(drawn(row))
    yield [True] * count
    for single in range(count if count > 1 else 0):
        if not (single == 0 and writes(row)):
            yield [place != single for place in range(count)]


@rows_for("vmap", has_tensors)
def test_vmap_is_a_loop(row: Row) -> None:
    examples = [arrays_of(row, again) for again in range(2)]
    for batched in batched_places(row):
        given = [np.stack(each) if all_ else each[0] for each, all_ in zip(zip(*examples), batched)]
        inputs = [lucid_gpu.tensor(array) for array in given]
        dims = tuple(0 if all_ else None for all_ in batched)
        got = vmap(results_of(row), in_dims=dims)(*inputs)
        loop = [
            results_of(row)(*(x[i] if all_ else x for x, all_ in zip(inputs, batched)))
            for i in range(2)
        ]
        for part, wanted in zip(got, zip(*loop), strict=True):
            close(part, lucid_gpu.stack(wanted), f"batched {batched}")


def outcome(call: Callable[[], Any]) -> Any:
    """The dtypes of what a call gives, or that it refuses."""
    try:
        return [kind(part) for part in parts(call())]
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return "refused"


def singles(module: Any, row: Row) -> list[Any]:
    return [module.tensor(a.astype("F" if np.iscomplexobj(a) else "f")) for a in arrays_of(row)]


@rows_for("autocast", has_tensors)
def test_types_under_autocast_are_those_of_torch(row: Row) -> None:
    def found_with(module: Any) -> Any:
        with module.autocast("cpu", dtype=module.bfloat16):
            return outcome(lambda: called(row, module, singles(module, row)))

    assert found_with(lucid_gpu) == found_with(torch_module())


def is_real(row: Row) -> bool:
    return has_tensors(row) and all(each.domain != "complex" for each in drawn(row))


TYPES = ("float32", "int64", "bool")
WITH_TYPES = [
    marked(f"types-{type}", name, row, type)
    for name, row in NUMBERED.items()
    if is_real(row)
    for type in TYPES
]


@pytest.mark.each_value
@pytest.mark.parametrize("row, type", WITH_TYPES)
def test_types_are_those_of_torch(row: Row, type: str, request: Any) -> None:
    """Where PyTorch refuses a type, so do we, or the row stands in `WIDER`."""

    def found_with(module: Any) -> Any:
        tensors = [module.tensor(a).to(getattr(module, type)) for a in arrays_of(row)]
        return outcome(lambda: called(row, module, tensors))

    got, expected = found_with(lucid_gpu), found_with(torch_module())
    name = request.node.callspec.id.removesuffix(f"-{type}")
    if name in WIDER.get(type, "").split():
        assert got != expected == "refused"
    else:
        assert got == expected


# --- out=, in place, refusals ---------------------------------------------------------------------


def check_out(row: Row, module: Any) -> None:
    """Call with ``out=`` and look what it holds, and what the call gave."""
    args, kwargs = arguments(row, module, [module.tensor(a) for a in arrays_of(row)])
    plain = found(module, row.name)(*args, **kwargs)
    out = [module.zeros_like(part) for part in parts(plain)]
    given = tuple(out) if isinstance(plain, (tuple, list)) else out[0]
    result = found(module, row.name)(*args, **kwargs, out=given)
    assert all(a is b for a, b in zip(parts(result), out, strict=True))
    for mine, wanted in zip(out, parts(plain)):
        close(mine, wanted)


def is_function(row: Row) -> bool:
    return not row.name.startswith("Tensor.")


@rows_for("out", is_function)
def test_out_is_written_and_returned(row: Row) -> None:
    try:
        check_out(row, lucid_gpu)
    except TypeError as error:
        if "out" not in str(error):
            raise
        with pytest.raises((TypeError, AssertionError)):
            check_out(row, torch_module())


def in_place_names(row: Row) -> list[str]:
    """Names of a row's op that write into the first argument."""
    ops = ops_by_name()
    same = [name for name, op in ops.items() if op is ops[row.name] and name != row.name]
    return [name for name in same if name.endswith("_") and not name.endswith("__")]


@rows_for("in_place", lambda row: bool(in_place_names(row)) and not writes(row))
def test_in_place_gives_the_same(row: Row) -> None:
    plain = leaves(lucid_gpu, arrays_of(row))
    expected = called(row, lucid_gpu, plain)
    slopes = gradients(lucid_gpu, [expected], plain)
    for name in in_place_names(row):
        inputs = leaves(lucid_gpu, arrays_of(row))
        args, kwargs = arguments(row, lucid_gpu, inputs)
        target = args[0] = args[0].clone()
        assert found(lucid_gpu, name)(*args, **kwargs) is target, name
        close(target, expected, name)
        for a, b in zip(gradients(lucid_gpu, [target], inputs), slopes, strict=True):
            close(a, b, name)


def first_tensor(row: Row) -> int | None:
    places = (i for i, a in enumerate(row.args) if isinstance(a, Fixed) or any(placeholders(a)))
    return next(places, None)


@pytest.mark.each_value
@pytest.mark.parametrize("wrong", ["text", None])
@rows_for("refusal", lambda row: first_tensor(row) is not None and is_function(row))
def test_what_is_no_tensor_is_refused_in_plain_words(row: Row, wrong: Any) -> None:
    args, kwargs = arguments(row, lucid_gpu, [lucid_gpu.tensor(a) for a in arrays_of(row)])
    args[first_tensor(row) or 0] = wrong
    with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)) as refused:
        found(lucid_gpu, row.name)(*args, **kwargs)
    assert "'_" not in str(refused.value) and "_expr" not in str(refused.value)
