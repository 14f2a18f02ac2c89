"""The table of SciPy's functions: how each runs on a library, its derivative, its domain.

A row is made where the function is declared: `elementwise` for what SciPy and `cupyx.scipy`
compute of each element, with a slope by each operand; `linear` for what is linear in one operand,
with its adjoint; `composed` for what is written in functions of tensors. Rows bear no samples:
tests/scipy/samples.py has a call of each.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, backend_of_array, device_of, scipy
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.func.trees import flatten
from lucid_gpu.numpy.operands import as_tensors
from lucid_gpu.ops.record import record
from lucid_gpu.ops.stacking import broadcast_tensors
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp, on_value
from lucid_gpu.tensor import Tensor

# Settings of SciPy's that change no value: tensors need none of them.
OF_MEMORY = {
    "check_finite",
    "workers",
    *[f"overwrite_{name}" for name in ("a", "b", "ab", "c", "x")],
}

F = TypeVar("F", bound=Callable[..., Any])
Slope = Callable[..., Any]


class Row(NamedTuple):
    """One function.

    Attributes
    ----------
    name : str
        As SciPy's users write it after ``scipy.``, such as ``special.jv``.
    runs : {"library", "ops", "refused"}
        Whether SciPy and CuPy compute its values, or a composition of tensors; or no tensor is
        taken.
    by : str
        The parameters that it has derivatives by; empty for none.
    domain : str
        Where it has a value and a derivative, in words; empty for everywhere.
    refused : str
        Arguments of SciPy's that are refused, with the reason.
    """

    name: str
    runs: str
    by: str
    domain: str = ""
    refused: str = ""


ROWS: dict[str, Row] = {}


def dispatched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` of tensors; of plain arrays it is the library's function called `name`."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        leaves = flatten((args, kwargs))[0]
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            return function(*args, **{k: v for k, v in kwargs.items() if k not in OF_MEMORY})
        devices = {device_of(leaf).type for leaf in leaves if backend_of_array(leaf) is not None}
        return scipy.function(max(devices, default="cpu"), name)(*args, **kwargs)

    return called


def _public(row: Row, function: Callable[..., Any]) -> Callable[..., Any]:
    ROWS[row.name] = row
    return dispatched(row.name, function)


def composed(space: str, domain: str = "", by: str = "", refused: str = "") -> Callable[[F], F]:
    """Enter a function of tensors under its own name in ``scipy.<space>``.

    `by` names the parameters that it has derivatives by: the first one where it is empty.
    """

    def enter(function: F) -> F:
        first = next(iter(inspect.signature(function).parameters))
        row = Row(f"{space}.{function.__name__}", "ops", by or first, domain, refused)
        return _public(row, function)  # type: ignore[return-value]

    return enter


def refused(name: str, why: str) -> Callable[..., Any]:
    """Enter a function of SciPy's that takes no tensors: `why` follows a colon."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"scipy.{name} has no derivative here: {why}")

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__doc__ = f"Return what `scipy.{name}` does of arrays; NotImplementedError of tensors."
    return _public(Row(name, "refused", "", refused=why), function)


def floats(name: str, values: Mapping[str, Any]) -> list[Tensor]:
    """Return `values` as tensors of one floating point type and device.

    Whole numbers are float64, as in SciPy, and two-byte floats float32; numbers and arrays take
    the type of the tensors beside them.

    Raises
    ------
    TypeError
        For complex numbers.
    """
    tensors = as_tensors(values.values())
    types = [v.dtype for v in values.values() if isinstance(v, Tensor)]
    d = functools.reduce(dt.promote_types, types)
    if any(t.dtype.category == 3 for t in tensors):
        raise TypeError(
            f"scipy.{name} has no derivative for complex numbers here; give it z.detach().numpy()"
        )
    d = dt.float64 if d.category < 2 else dt.float32 if d.itemsize == 2 else d
    return [t.to(d) for t in tensors]


def computed(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return what `function` gives of `args` with tensors' arrays; a capture notes it by `name`."""
    where = next(v.device for v in args if isinstance(v, Tensor))
    given = [v.array if isinstance(v, Tensor) else v for v in args]
    return backend(where).call(name, run_quietly, function, *given)


def elementwise(
    name: str, operands: str, slopes: Mapping[str, Slope], domain: str = "", of: str = ""
) -> Callable[..., Any]:
    """Enter a function of each element that SciPy and CuPy compute.

    Parameters
    ----------
    name : str
        Such as ``special.jv``.
    operands : str
        The parameters' names, by spaces; one that may be left out with its number: ``x q=1``.
    slopes : mapping
        For the name of a parameter a function of all operands, in functions of tensors: the
        derivative by it. A parameter without one is refused where it requires grad.
    domain, of : str
        As in `Row`; and what the function is called in the first sentence of its docstring.
    """
    names = list(_parameters(operands))

    def slope(operand: str, values: Any) -> Tensor:
        if operand not in slopes:
            raise RuntimeError(
                f"scipy.{name} has no derivative by {operand}; give it {operand}.detach() if that "
                "is meant"
            )
        return slopes[operand](*values)

    def vjp(node: Any, g: Tensor) -> tuple[Any, ...]:
        values, needed = node.saved_values, node.needs_input_grad
        return tuple([g * slope(n, values) if w else None for n, w in zip(names, needed)])

    @jvp(vjp)
    def tangent(call: Call) -> list[Any]:
        given = [(n, t) for n, t in zip(names, call.tangents, strict=True) if t is not None]
        parts = [t * slope(n, call.inputs) for n, t in given]
        return [functools.reduce(lambda a, b: a + b, parts)]

    @op
    def values(*inputs: Tensor) -> Tensor:
        first = inputs[0]
        if first.is_meta:
            return first.new_empty(first.shape)
        array = computed(name, scipy.function(first.device.type, name), *inputs)
        array = array.astype(first.dtype.numpy, copy=False)  # CuPy has some in float64 only
        title = f"{name.rpartition('.')[2].capitalize()}Backward0"
        result: Tensor = record(title, array, inputs, vjp, inputs, first.dtype)
        return result

    @batching(values)
    def batched(level: Batch, f: Any, *inputs: Any) -> Any:
        return level.wrap(f(*broadcast_tensors(*[level.aligned(t, t.ndim) for t in inputs])))

    by = " ".join(n for n in names if n in slopes)
    return _public(Row(name, "library", by, domain), of_elements(name, operands, values, of))


def written(
    name: str, operands: str, function: Callable[..., Any], domain: str = "", of: str = ""
) -> Callable[..., Any]:
    """Enter a function of each element that is written in functions of tensors.

    Its parameters are those of `elementwise`; `function` takes tensors of one type and shape, and
    has a derivative by each.
    """
    by = " ".join(_parameters(operands))
    return _public(Row(name, "ops", by, domain), of_elements(name, operands, function, of))


def _parameters(operands: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of ``x q=1``: names, of which some have numbers as defaults."""
    made = {}
    for text in operands.split():
        name, _, default = text.partition("=")
        given = float(default) if default else inspect.Parameter.empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        made[name] = inspect.Parameter(name, kind, default=given)
    return made


def of_elements(
    name: str, operands: str, compute: Callable[..., Any], of: str = ""
) -> Callable[..., Any]:
    """Return a function of `operands` (see `elementwise`) that gives `compute` tensors alike."""
    signature = inspect.Signature(list(_parameters(operands).values()))

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"scipy.{name}(): {error}") from None
        bound.apply_defaults()
        return compute(*broadcast_tensors(*floats(name, bound.arguments)))

    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__doc__ = f"Return {of or f'`scipy.{name}`'} of each element; operands broadcast."
    return function


def linear(
    name: str, forward: Callable[..., Any], adjoint: Callable[..., Any], leads: bool = False
) -> Callable[..., Tensor]:
    """Return a function of a tensor and settings that is linear in the tensor.

    Parameters
    ----------
    name : str
        For its node.
    forward, adjoint : callable
        Of an array and the settings, with an array as the result; ``adjoint`` takes one like
        ``forward``'s result and gives one like its operand, so that each is the other's vjp.
    leads : bool
        Whether both take further dimensions in front, as `vmap` then gives them.
    """

    def made(title: str, compute: Callable[..., Any]) -> Any:
        @op
        def apply(input: Tensor, *settings: Any) -> Tensor:
            array = computed(title, compute, input, *settings)
            result: Tensor = record(
                f"{title}Backward0", array, (input,), vjp, (), input.dtype, settings=settings
            )
            return result

        def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
            return (pair[apply](g, *node.settings),)

        @jvp(vjp)
        def tangent(call: Call) -> list[Any]:
            return [apply(call.tangent(), *call.attributes["settings"])]

        if leads:
            batching(apply)(on_value)
        return apply

    there, back = made(name, forward), made(f"{name}Adjoint", adjoint)
    pair = {there: back, back: there}
    return there


def others(space: str, declared: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of the module of ``scipy.<space>``, which gives SciPy's own names.

    `declared` is the module's globals. AttributeError, with a close name, where SciPy has none.
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        library = scipy.module("cpu", space)
        try:
            return getattr(library, name)
        except AttributeError:
            from difflib import get_close_matches

            close = get_close_matches(name, [*declared, *dir(library)], 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            message = f"module 'lucid_gpu.scipy.{space}' has no attribute {name!r}{hint}"
            raise AttributeError(message) from None

    return __getattr__
