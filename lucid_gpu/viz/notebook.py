"""What notebooks show of tensors, modules and optimizers: plain HTML, in the page's own colors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from lucid_gpu.nn.parameter import UninitializedBuffer, UninitializedParameter
from lucid_gpu.ops.printing import get_printoptions, history_of, number_format
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

if TYPE_CHECKING:
    from lucid_gpu.nn.modules.module import Module
    from lucid_gpu.optim import Optimizer

__all__ = ["module_html", "optimizer_html"]

# Only transparent greys, which are seen on white and on black.
_PALE = "opacity:.65"
_FRAME = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:90%;line-height:1.5"
_SCROLL = "overflow:auto;max-height:30em"
_TABLE = "border-collapse:collapse;text-align:right;margin:.2em 0"
_INSIDE = "margin-left:.5em;padding-left:1em;border-left:1px solid rgba(128,128,128,.4)"


def _tag(name: str, content: str, style: str = "") -> str:
    return f'<{name} style="{style}">{content}</{name}>' if style else f"<{name}>{content}</{name}>"


def _pale(words: str) -> str:
    return _tag("span", escape(words), _PALE)


def _rows(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of texts that are HTML already."""
    body = "".join(_tag("tr", "".join(_tag("td", cell) for cell in row)) for row in rows)
    names = _tag("tr", "".join(_tag("th", cell) for cell in head), _PALE) if head else ""
    return f'<table cellpadding="3" style="{_TABLE}">{names}{body}</table>'


def _size(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _type(t: Tensor) -> str:
    return str(t.dtype).rpartition(".")[2]


def _unshaped(t: Tensor) -> bool:
    return isinstance(t, (UninitializedParameter, UninitializedBuffer))


# --- tensors --------------------------------------------------------------------------------------


def _repr_html_(self: Tensor) -> str | None:
    """A tensor's header, and a table of its numbers, or of its corners.

    The tensor is realized. Of more than two dimensions the first matrix is shown; what is left out
    is not copied from a GPU.

    Returns
    -------
    str or None
        None for sparse tensors and those inside function transforms, which are shown as text.
    """
    t = self
    if t._is_sparse or t._wrapper is not None or _unshaped(t):
        return None
    facts = [_size(t.shape), _type(t), str(t.device), *history_of(t)]
    head = f"<b>{escape(type(t).__name__)}</b> " + _pale(" · ".join(facts))
    if not t.numel():
        return _tag("div", head + " " + _pale("without elements"), _FRAME)
    hidden = max(t.ndim - 2, 0)
    shown = t.detach()[(0,) * hidden]
    if hidden:
        index = ", ".join("0" * hidden)
        head += _pale(f", of which [{index}] is shown")
    return _tag("div", head + _tag("div", _numbers(shown), _SCROLL), _FRAME)


METHODS = (_repr_html_,)


def _numbers(t: Tensor) -> str:
    """A table of a number, a vector or a matrix, abbreviated as texts are."""
    options = get_printoptions()
    short, edge = t.numel() > options["threshold"], options["edgeitems"]
    columns = _kept(t.shape[-1], edge, short) if t.ndim else [0]
    rows = _kept(t.shape[0], edge, short) if t.ndim == 2 else [0]
    for dim, kept in ((t.ndim - 1, columns), (0, rows)):
        if None in kept:
            t = cat([t.narrow(dim, 0, edge), t.narrow(dim, t.shape[dim] - edge, edge)], dim)
    values = t.cpu().reshape(-1).tolist()
    written, numbers = number_format(values, t.dtype), iter(values)
    body = []
    for i in rows:
        label = [_pale("…" if i is None else str(i))] if t.ndim == 2 else []
        cells = [
            "…" if i is None or j is None else escape(written(next(numbers)).strip())
            for j in columns
        ]
        body.append(label + cells)
    if not t.ndim:
        return _rows(body)
    names = ["…" if j is None else str(j) for j in columns]
    return _rows(body, [""] * (t.ndim - 1) + names)


def _kept(extent: int, edge: int, short: bool) -> list[int | None]:
    """The positions that are shown, None where some are left out."""
    if not short or extent <= 2 * edge:
        return list(range(extent))
    return [*range(edge), None, *range(extent - edge, extent)]


# --- modules --------------------------------------------------------------------------------------


def module_html(module: Module) -> str:
    """A tree of layers that opens and closes, with settings, shapes and counts.

    Parameters
    ----------
    module : Module
    """
    return _tag("div", _branch(module, "", True), _FRAME)


def _branch(module: Module, name: str, opened: bool = False) -> str:
    kind, settings = type(module).__name__, " ".join(module.extra_repr().split())
    title = f"{_pale(name + ':')} " if name else ""
    title += f"<b>{escape(kind)}</b>" + (escape(f"({settings})") if settings else "")
    title += f" {_pale(count)}" if (count := _count(module)) else ""
    inside = _tensors(module)
    inside += "".join(
        _branch(child, key) if child is not None else _tag("div", _pale(f"{key}: None"))
        for key, child in module._modules.items()
    )
    if not inside:
        return _tag("div", title, "padding-left:1em")
    start = "<details open>" if opened else "<details>"
    return (
        f"{start}{_tag('summary', title, 'cursor:pointer')}{_tag('div', inside, _INSIDE)}</details>"
    )


def _count(module: Module) -> str:
    """How many parameters there are, each counted once."""
    parameters = list(module.parameters())
    known = [p for p in parameters if not _unshaped(p)]
    fixed = sum(p.numel() for p in known if not p.requires_grad)
    texts = [f"{sum(p.numel() for p in known):,} parameters"] if known else []
    texts += [f"{fixed:,} of them frozen"] * bool(fixed)
    texts += ["some known after the first call"] * (len(known) < len(parameters))
    return ", ".join(texts)


def _tensors(module: Module) -> str:
    """The module's own parameters and buffers."""
    rows = [
        [escape(name), "?" if _unshaped(t) else _size(t.shape), _pale(" · ".join(_facts(t, what)))]
        for what, table in (("", module._parameters), ("buffer", module._buffers))
        for name, t in table.items()
        if t is not None
    ]
    return _rows(rows) if rows else ""


def _facts(t: Tensor, what: str) -> list[str]:
    frozen = [] if what or t.requires_grad else ["frozen"]
    return [_type(t), str(t.device), *([what] if what else frozen)]


# --- optimizers -----------------------------------------------------------------------------------


def optimizer_html(optimizer: Optimizer) -> str:
    """A table of settings, a row for each group of parameters.

    Parameters
    ----------
    optimizer : Optimizer
    """
    names = [name for name in optimizer.param_groups[0] if name not in ("params", "param_names")]
    rows = []
    for group in optimizer.param_groups:
        tensors = [p for p in group["params"] if not _unshaped(p)]
        count = f"{len(group['params'])} tensors, {sum(p.numel() for p in tensors):,} numbers"
        rows.append([_pale(count), *(escape(str(group.get(name, ""))) for name in names)])
    title = f"<b>{escape(type(optimizer).__name__)}</b>"
    table = _rows(rows, ["", *map(escape, names)])
    return _tag("div", title + _tag("div", table, _SCROLL), _FRAME)
