"""A model as a table: its layers, what they give, how many parameters they have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from lucid_gpu import nn
from lucid_gpu.nn.modules.sparse import Embedding
from lucid_gpu.ops.random import rand
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Summary", "summary"]


class Row(NamedTuple):
    """A module that ran, or one that did not.

    Attributes
    ----------
    depth : int
    name, kind : str
        The attribute it is under, and its class.
    shape : list of shapes, or None
        Of what it gave; None for a module that did not run.
    params : int
        Of the module itself, without those inside it.
    trainable : int
        How many of them require grad.
    mult_adds : int
        Multiplications of its matrix products.
    """

    depth: int
    name: str
    kind: str
    shape: Any
    params: int
    trainable: int
    mult_adds: int
    again: bool  # it ran before: its parameters count once


class Summary:
    """What `summary` returns; printing it shows the table.

    Attributes
    ----------
    rows : list of Row
    total_params, trainable_params, total_mult_adds : int
    input_bytes, output_bytes, param_bytes : int
        Of the inputs, of what the modules at the ends of the tree gave, of the parameters.
    """

    def __init__(self, model: Any, rows: list[Row], input_bytes: int, output_bytes: int) -> None:
        self.rows = rows
        parameters = list(model.parameters())
        self.total_params = sum(p.numel() for p in parameters)
        self.trainable_params = sum(p.numel() for p in parameters if p.requires_grad)
        self.total_mult_adds = sum(row.mult_adds for row in rows)
        self.param_bytes = sum(p.numel() * p.dtype.itemsize for p in parameters)
        self.input_bytes, self.output_bytes = input_bytes, output_bytes

    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                "  " * row.depth + (f"{row.name}: " if row.name else "") + row.kind,
                "not called" if row.shape is None else _shapes(row.shape),
                "again" if row.again else f"{row.params:,}" if row.params else "",
                f"{row.mult_adds:,}" if row.mult_adds else "",
            )
            for row in self.rows
        ]

    def _totals(self) -> list[tuple[str, str]]:
        fixed = self.total_params - self.trainable_params
        return [
            ("Parameters", f"{self.total_params:,}" + (f" ({fixed:,} frozen)" if fixed else "")),
            ("Mult-adds", f"{self.total_mult_adds:,}"),
            (
                "Memory",
                f"input {_bytes(self.input_bytes)}, results {_bytes(self.output_bytes)}, "
                f"parameters {_bytes(self.param_bytes)}",
            ),
        ]

    def __str__(self) -> str:
        head = ("Layer", "Output shape", "Parameters", "Mult-adds")
        table = [head, *self._cells()]
        wide = [max(len(row[i]) for row in table) for i in range(4)]
        lines = [
            f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c:>{wide[2]}}  {d:>{wide[3]}}".rstrip()
            for a, b, c, d in table
        ]
        rule = "─" * max(map(len, lines))
        ends = [f"{name}: {value}" for name, value in self._totals()]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule, *ends, rule])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left, right = 'style="text-align:left;white-space:pre"', 'style="text-align:right"'
        rows = "".join(
            f"<tr><td {left}>{escape(a)}</td><td {left}>{escape(b)}</td><td {right}>{c}</td>"
            f"<td {right}>{d}</td></tr>"
            for a, b, c, d in self._cells()
        )
        ends = "<br>".join(f"<b>{name}</b>: {value}" for name, value in self._totals())
        return (
            f"<table><thead><tr><th {left}>Layer</th><th {left}>Output shape</th><th>Parameters"
            f"</th><th>Mult-adds</th></tr></thead><tbody>{rows}</tbody></table><p>{ends}</p>"
        )


def summary(
    model: Any,
    input_size: Any = None,
    input_data: Any = None,
    *,
    dtypes: Sequence[Any] | None = None,
    device: Any = None,
    depth: int = 3,
    **kwargs: Any,
) -> Summary:
    """Run a model once and tabulate its layers.

    The model runs in evaluation mode and without gradients, and is left as it was.

    Parameters
    ----------
    model : Module
    input_size : sequence of int, or of such sequences
        The shape of the input, or of several, the batch included: ``(64, 1, 28, 28)``. They are
        filled with random numbers (ones, for integer ``dtypes``).
    input_data : Tensor, sequence or dict, optional
        The inputs themselves, instead.
    dtypes : sequence of dtype, optional
        Of the inputs that ``input_size`` makes; floats by default.
    device : device, optional
        Where they are made; where the model's parameters are by default.
    depth : int
        Modules further inside are not listed; what they have counts for the last that is.
    **kwargs
        Handed to the model.

    Returns
    -------
    Summary

    Raises
    ------
    TypeError, ValueError
        For anything but a module, and unless exactly one of ``input_size`` and ``input_data`` is
        given.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"summary() takes an nn.Module, not {type(model).__name__}")
    if (input_size is None) == (input_data is None):
        raise ValueError(
            "summary() takes either input_size, such as (64, 1, 28, 28), or input_data"
        )
    if input_data is None:
        where = device or next((p.device for p in model.parameters()), "cpu")
        arguments: Sequence[Any] = _made(input_size, dtypes, where)
    elif isinstance(input_data, Mapping):
        arguments, kwargs = (), {**input_data, **kwargs}
    else:
        arguments = (input_data,) if isinstance(input_data, Tensor) else tuple(input_data)
    visits = _run(model, arguments, kwargs)
    inputs = _tensors([arguments, kwargs])
    ends = [out for module, out in visits if not list(module.children())]
    rows = list(_rows(model, visits, depth))
    return Summary(model, rows, _size(inputs), _size(_tensors(ends)))


def _made(input_size: Any, dtypes: Any, where: Any) -> list[Tensor]:
    sizes = [input_size] if all(isinstance(n, int) for n in input_size) else list(input_size)
    kinds = list(dtypes or [None] * len(sizes))
    if len(kinds) != len(sizes):
        raise ValueError(f"there are {len(sizes)} sizes and {len(kinds)} dtypes")
    made = [rand(*size, device=where) for size in sizes]
    return [
        t if kind is None else t.to(kind) if kind.is_floating_point else t.mul(0).add(1).to(kind)
        for t, kind in zip(made, kinds)
    ]


def _run(model: Any, arguments: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """What each call of a module gave, in the order in which the calls ended."""
    visits: list[tuple[Any, Any]] = []
    hooks = [
        module.register_forward_hook(lambda m, _, out: visits.append((m, out)))
        for module in model.modules()
    ]
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with no_grad():
            model(*arguments, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return visits


def _rows(model: Any, visits: list[tuple[Any, Any]], depth: int) -> Iterable[Row]:
    """The tree of modules from the top, with what their calls gave."""
    outputs: dict[int, list[Any]] = {}
    for module, out in visits:
        outputs.setdefault(id(module), []).append(out)
    seen: set[int] = set()
    pending = [(model, "", 0)]
    while pending:
        module, name, level = pending.pop()
        calls = outputs.get(id(module), [])
        again = id(module) in seen
        seen.add(id(module))
        inside = [] if level == depth else list(module._modules.items())
        own = list(module.modules()) if level == depth else [module]
        parameters = {id(p): p for m in own for p in m._parameters.values() if p is not None}
        new = [p for i, p in parameters.items() if i not in seen]
        seen.update(parameters)
        yield Row(
            level,
            name,
            type(module).__name__,
            [tuple(t.shape) for t in _tensors(calls[-1:])] if calls else None,
            sum(p.numel() for p in new),
            sum(p.numel() for p in new if p.requires_grad),
            0 if again else sum(_products(m, out) for m in own for out in outputs.get(id(m), [])),
            again,
        )
        if not again:
            pending += [(m, n, level + 1) for n, m in reversed(inside) if m is not None]


def _products(module: Any, out: Any) -> int:
    """Multiplications of a layer that is a matrix product or a convolution."""
    weight = module._parameters.get("weight")
    if not isinstance(out, Tensor) or weight is None or weight.ndim < 2:
        return 0
    if isinstance(module, Embedding):
        return 0
    channels = 1 if type(module).__name__.startswith("Conv") else out.ndim - 1
    if out.ndim < 2:
        return int(weight.numel())
    places = out.numel() // max(out.shape[channels], 1)
    return int(weight.numel() * places)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    return []


def _size(tensors: list[Tensor]) -> int:
    return sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors)


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes) or "no tensor"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"
