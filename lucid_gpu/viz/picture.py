"""SVG pictures: written as text, shown by notebooks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

__all__ = ["Picture", "element", "text", "width_of"]

INK, PALE, LINE, PAPER = "#1f2937", "#6b7280", "#9ca3af", "#ffffff"
_SANS = "-apple-system,'Segoe UI',Inter,Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"
_MONO = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"


class Picture:
    """An SVG picture.

    Attributes
    ----------
    svg : str
    """

    def __init__(self, width: float, height: float, parts: list[str], title: str = "") -> None:
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        paper = element("rect", width=width, height=height, rx=10, fill=PAPER)
        named = f"<title>{escape(title)}</title>" if title else ""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_SANS}">'
        self.svg = "\n".join([head, named + paper, *parts, "</svg>", ""])

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.svg)} bytes of SVG; .save('picture.svg') it>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self.svg, "utf-8")


def element(name: str, content: str = "", **attributes: Any) -> str:
    """An element; ``_`` in names of attributes stands for ``-``."""
    said = " ".join(
        f"{key.replace('_', '-')}={quoteattr(_number(value))}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name} {said}>{content}</{name}>" if content else f"<{name} {said}/>"


def _number(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(
    x: float,
    y: float,
    words: str,
    size: float = 12.0,
    fill: str = INK,
    anchor: str = "middle",
    mono: bool = False,
    bold: bool = False,
) -> str:
    """A line of text, its baseline at ``y``."""
    return element(
        "text",
        escape(words),
        x=x,
        y=y,
        font_size=size,
        fill=fill,
        text_anchor=anchor,
        font_family=_MONO if mono else None,
        font_weight=600 if bold else None,
    )


def width_of(words: str, size: float = 12.0, mono: bool = False) -> float:
    """About how wide a line is; the fonts are not known here."""
    return len(words) * size * (0.61 if mono else 0.56)
