"""The autograd graph of a tensor as a picture: what is fused stands in one frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from lucid_gpu.core.node import AccumulateGrad, Node
from lucid_gpu.fusion.region import RegionNode
from lucid_gpu.tensor import Tensor
from lucid_gpu.viz.layered import draw
from lucid_gpu.viz.picture import INK, LINE, PALE, Picture, element, text, width_of

__all__ = ["graph"]

_MARGIN = 22.0
_MOST_USES = 3
_HIDDEN = {"load", "constant", "scalar", "boundary", "index"}
_CHIP, _CHIP_GAP, _CHIPS_WIDE = 19.0, 6.0, 250.0


class _Look(NamedTuple):
    fill: str
    edge: str
    ink: str


_LOOKS = {
    "parameter": _Look("#e0ecff", "#6b9bea", "#1e3a6e"),
    "leaf": _Look("#e3f6ea", "#5fb98a", "#14532d"),
    "op": _Look("#f3f4f6", "#b6bcc6", INK),
    "region": _Look("#fff4dc", "#eab155", "#7a4b07"),
    "function": _Look("#f1e7fd", "#a984dc", "#4c1d95"),
    "result": _Look("#1f2937", "#1f2937", "#ffffff"),
}
_LEGEND = {
    "region": "one fused kernel",
    "op": "an op of its own",
    "function": "autograd.Function",
    "parameter": "parameter",
    "leaf": "other leaf",
}


class _Box(NamedTuple):
    """What a node shows: a title, what stands under it, and the ops of a region."""

    kind: str
    title: str
    below: str = ""
    ops: tuple[str, ...] = ()
    tip: str = ""

    @property
    def rows(self) -> list[list[str]]:
        """The ops in rows of chips."""
        rows: list[list[str]] = [[]]
        for op in self.ops:
            if rows[-1] and sum(map(_chip, rows[-1])) + _chip(op) > _CHIPS_WIDE:
                rows.append([])
            rows[-1].append(op)
        return rows if self.ops else []

    @property
    def size(self) -> tuple[float, float]:
        wide = [width_of(self.title, 12.5) * 1.08 + 26, width_of(self.below, 10.5, True) + 26]
        wide += [sum(map(_chip, row)) + 18 for row in self.rows]
        tall = 25.0 + (15 if self.below else 3) + (_CHIP + 5) * len(self.rows) + 3 * bool(self.ops)
        return max(wide), tall


def _chip(op: str) -> float:
    return width_of(op, 10.5, True) + 12 + _CHIP_GAP


def graph(
    output: Tensor | Iterable[Tensor], params: Any = None, *, title: str = "", legend: bool = True
) -> Picture:
    """Draw how a tensor was computed, from the leaves at the top to the tensor at the bottom.

    Each orange frame is a region: the elementwise ops in it are one kernel forward, and their
    gradients one backward.

    Parameters
    ----------
    output : Tensor or iterable of Tensor
        They must require grad.
    params : dict or Module, optional
        Names for leaves: ``dict(model.named_parameters())``, or the model itself.
    title : str
    legend : bool
        What the colors mean, at the bottom.

    Returns
    -------
    Picture
        Notebooks show it; ``.save("graph.svg")`` writes it.

    Raises
    ------
    TypeError, ValueError
        For anything but a tensor, and for tensors that no gradient leads from.
    """
    outputs = [output] if isinstance(output, Tensor) else list(output)
    for one in outputs:
        if not isinstance(one, Tensor):
            raise TypeError(f"graph() draws tensors, not {type(one).__name__}")
        if not one.requires_grad:
            raise ValueError("graph() draws tensors that require grad; this one has no graph")
    boxes, edges = _collect(outputs, _names(params))
    return _picture(boxes, edges, title, legend)


def _names(params: Any) -> dict[int, str]:
    if hasattr(params, "named_parameters"):
        params = dict(params.named_parameters())
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"params is a dict of names and tensors, not {type(params).__name__}")
    return {id(tensor): name for name, tensor in (params or {}).items()}


def _collect(outputs: list[Tensor], names: dict[int, str]) -> tuple[list[_Box], list[Any]]:
    """The boxes, and the edges between them in the direction of the data."""
    boxes: list[_Box] = []
    edges: dict[tuple[int, int], None] = {}  # in order, each once
    numbers: dict[Node, int] = {}
    pending: list[Node] = []

    def number(node: Node) -> int:
        if node not in numbers:
            numbers[node] = len(boxes)
            boxes.append(_box(node, names))
            pending.append(node)
        return numbers[node]

    uses: dict[Node, int] = {}

    def box_of(node: Node) -> int:
        """A leaf that many ops use is drawn beside each of them."""
        uses[node] = uses.get(node, 0) + 1
        if uses[node] > _MOST_USES and isinstance(node, AccumulateGrad):
            boxes.append(_box(node, names))
            return len(boxes) - 1
        return number(node)

    for i, output in enumerate(outputs):
        source = number(output._edge()[0])
        label = "result" if len(outputs) == 1 else f"result {i}"
        boxes.append(_Box("result", label, _shape(output)))
        edges[source, len(boxes) - 1] = None
    while pending:
        node = pending.pop()
        for other, _ in node._edges:
            if other is not None:
                edges[box_of(other), numbers[node]] = None
    return boxes, list(edges)


def _box(node: Node, names: dict[int, str]) -> _Box:
    if isinstance(node, AccumulateGrad):
        leaf = node.variable
        if leaf is None:
            return _Box("leaf", "a leaf that is gone")
        name = names.get(id(leaf))
        kind = "parameter" if name or type(leaf) is not Tensor else "leaf"
        return _Box(kind, name or "leaf", _shape(leaf), tip=f"{leaf.dtype} on {leaf.device}")
    name = node.name()
    for ending in ("Backward0", "Backward1", "Backward2", "Backward"):
        name = name.removesuffix(ending)
    if not isinstance(node, RegionNode):
        metas = [m for m in node._input_metadata if m is not None]
        own = "lucid_gpu" not in type(node).__module__ or hasattr(node, "save_for_backward")
        return _Box("function" if own else "op", name, ", ".join(map(_shape, metas)))
    ops = tuple(i.op for i in node.program.instructions if i.op not in _HIDDEN)
    count = f"{len(ops)} ops, 1 kernel" if len(ops) > 1 else "1 op"
    dims = _shape(node)
    return _Box("region", count, dims, ops, tip=f"{node.name()}: {', '.join(ops)}")


def _shape(thing: Any) -> str:
    return "×".join(map(str, thing.shape)) if len(thing.shape) else "scalar"


def _picture(boxes: list[_Box], edges: list[Any], title: str, legend: bool) -> Picture:
    drawing = draw([box.size for box in boxes], edges)
    kinds = [kind for kind in _LEGEND if any(box.kind == kind for box in boxes)] if legend else []
    keys = [width_of(_LEGEND[kind], 11) + 34 for kind in kinds]
    width = max(drawing.width, sum(keys), width_of(title, 15)) + 2 * _MARGIN
    top = _MARGIN + (30 if title else 0)
    left = (width - drawing.width) / 2
    parts = [text(width / 2, _MARGIN + 8, title, 15, bold=True)] if title else []
    for points in drawing.edges:
        parts += _arrow([(x + left, y + top) for x, y in points])
    for box, (x, y) in zip(boxes, drawing.centers):
        parts += _drawn(box, x + left, y + top)
    bottom = top + drawing.height + _MARGIN
    x = (width - sum(keys)) / 2
    for kind, key in zip(kinds, keys):
        look = _LOOKS[kind]
        paint = {"fill": look.fill, "stroke": look.edge}
        parts.append(element("rect", x=x, y=bottom + 2, width=14, height=14, rx=4, **paint))
        parts.append(text(x + 20, bottom + 13, _LEGEND[kind], 11, PALE, "start"))
        x += key
    return Picture(width, bottom + (18 + _MARGIN if kinds else 0), parts, title or "autograd graph")


def _arrow(points: list[tuple[float, float]]) -> list[str]:
    """A curve that leaves and arrives upright, and its head."""
    (x, y), path = points[0], f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    ends = [*points[1:-1], (points[-1][0], points[-1][1] - 5)]
    for x1, y1 in ends:
        middle = (y + y1) / 2
        path += f" C{x:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        x, y = x1, y1
    tip = f"M{x - 4:.1f} {y - 2:.1f} L{x:.1f} {y + 5:.1f} L{x + 4:.1f} {y - 2:.1f} Z"
    return [
        element("path", d=path, fill="none", stroke=LINE, stroke_width=1.4),
        element("path", d=tip, fill=LINE),
    ]


def _drawn(box: _Box, x: float, y: float) -> list[str]:
    look, (width, height) = _LOOKS[box.kind], box.size
    left, top = x - width / 2, y - height / 2
    round_ = height / 2 if box.kind in ("parameter", "leaf", "result") else 8
    frame = element(
        "rect",
        f"<title>{escape(box.tip)}</title>" if box.tip else "",
        x=left,
        y=top,
        width=width,
        height=height,
        rx=round_,
        fill=look.fill,
        stroke=look.edge,
        stroke_width=1.3,
    )
    parts = [frame, text(x, top + 18, box.title, 12.5, look.ink, bold=True)]
    at = top + 26
    for row in box.rows:
        start = x - (sum(map(_chip, row)) - _CHIP_GAP) / 2
        for op in row:
            wide = _chip(op) - _CHIP_GAP
            paint = {"fill": "#fff", "stroke": "#f0cf95"}
            parts.append(element("rect", x=start, y=at, width=wide, height=_CHIP, rx=5, **paint))
            parts.append(text(start + wide / 2, at + 13.5, op, 10.5, look.ink, mono=True))
            start += wide + _CHIP_GAP
        at += _CHIP + 5
    if box.below:
        ink = "#cbd5e1" if box.kind == "result" else PALE
        parts.append(text(x, top + height - 9, box.below, 10.5, ink, mono=True))
    return parts
