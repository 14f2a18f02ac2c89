"""Draw the README's two pictures anew: ``make pictures`` runs it.

``fused.svg`` shows a backward of a user's own and the CUDA C that was generated for it;
``speed.svg`` shows what ``bench/results/cpu.json`` holds, and a table of docs/performance.md what
each processor's file there holds.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
PICTURES = TREE / "docs" / "pictures"
RESULTS = TREE / "bench" / "results" / "cpu.json"
PERFORMANCE = TREE / "docs" / "performance.md"
MARKS = "<!-- table: tools/draw_readme.py -->", "<!-- end of table -->"
# What the speed chart shows, by the names of the results, under shorter titles.
CASES = {
    "chain-2^24": "elementwise chain, 2^24 elements",
    "chain-64": "elementwise chain, 64 x 64",
    "residual-norm": "bias + GELU + residual + layer norm",
    "cross-entropy": "cross entropy, 4,096 classes",
    "function": "100 calls of a custom Function",
    "mlp": "MLP, training step",
    "gpt": "small GPT, training step",
    "lstm": "LSTM, training step",
    "lenet": "LeNet, training step",
    "resnet": "small ResNet, training step",
}
# The axis is logarithmic: time relative to torch eager, from the first to the last of these.
TICKS = (0.03, 0.1, 0.3, 1.0, 3.0)
MONO = 'font-family="ui-monospace,Menlo,Consolas,monospace"'
SANS = 'font-family="system-ui,Segoe UI,Helvetica,Arial,sans-serif"'


def example() -> str:
    """The README's block of code."""
    (code,) = re.findall(r"```python\n(.*?)```", (TREE / "README.md").read_text("utf-8"), re.DOTALL)
    return str(code)


def generated(code: str) -> str:
    """The CUDA C of one element of the last gradient that a program computes, `x.grad`."""
    code = re.sub(r"^print\(.*\n", "", code, flags=re.MULTILINE)
    code += "print(torch.explain(x.grad).source)\n"
    environment = os.environ | {"LUCID_EXECUTOR": "host-cuda", "PYTHONPATH": str(TREE)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    (body,) = re.findall(r"^(LUCID_FN void element.*?^})", ran.stdout, re.DOTALL | re.MULTILINE)
    return str(body).replace("LUCID_FN", "__device__")


def fused() -> str:
    """A user's backward beside the kernel made of it."""
    code = example()
    start = code.index("    @staticmethod\n    def backward")
    left = [line[4:] for line in code[start : code.index("\n\n\n", start)].split("\n")]
    right = generated(code).split("\n")
    rows = max(len(left), len(right))
    height = 86 + 19 * rows
    panels = [
        _panel(16, 430, height - 32, "what you write", left),
        _panel(462, 738, height - 32, "what runs, for each element: one kernel", right),
    ]
    return _svg(1216, height, "A custom backward and its generated CUDA C", "".join(panels))


def _panel(x: int, width: int, height: int, title: str, lines: list[str]) -> str:
    text = "".join(
        f'<text x="{x + 14}" y="{74 + 19 * i}" {MONO} font-size="12" fill="#1f2328" '
        f'xml:space="preserve">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<rect x="{x}" y="16" width="{width}" height="{height}" rx="8" fill="#f6f8fa" '
        'stroke="#d1d9e0"/>'
        f'<text x="{x + 14}" y="42" {SANS} font-size="14" font-weight="600" fill="#59636e">'
        f"{escape(title)}</text>{text}"
    )


def speed(results: dict[str, Any]) -> str:
    """Time of lucid_gpu and torch.compile relative to torch eager, a row a case."""
    cases = {case["name"]: case for case in results["cases"]}
    rows = "".join(_row(i, title, cases[name]) for i, (name, title) in enumerate(CASES.items()))
    bottom = 88 + 36 * len(CASES)
    axis = "".join(
        f'<line x1="{_x(t):.1f}" y1="70" x2="{_x(t):.1f}" y2="{bottom - 10}" '
        f'stroke="{"#59636e" if t == 1 else "#d1d9e0"}"/>'
        f'<text x="{_x(t):.1f}" y="{bottom + 8}" {SANS} font-size="12" fill="#59636e" '
        f'text-anchor="middle">{t:g}</text>'
        for t in TICKS
    )
    machine = results["machine"]
    caption = (
        f"CPU time relative to torch eager; left of 1 is faster. {machine['cpu']}, "
        f"{machine['threads']} threads, torch {machine['versions']['torch']}"
    )
    head = (
        f'<text x="16" y="32" {SANS} font-size="14" font-weight="600" fill="#1f2328">'
        f"{escape(caption)}</text>"
        f'<circle cx="330" cy="52" r="6" fill="#0969da"/><text x="342" y="56" {SANS} '
        'font-size="12" fill="#1f2328">lucid_gpu</text>'
        f'<circle cx="430" cy="52" r="6" fill="#9a6700"/><text x="442" y="56" {SANS} '
        'font-size="12" fill="#1f2328">torch.compile</text>'
    )
    return _svg(1000, bottom + 24, "Measured speed", head + axis + rows)


def _x(ratio: float) -> float:
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return 330 + 640 * (math.log(ratio) - low) / (high - low)


def _row(index: int, title: str, case: dict[str, Any]) -> str:
    y = 90 + 36 * index
    return (
        f'<text x="316" y="{y + 4}" {SANS} font-size="13" fill="#1f2328" text-anchor="end">'
        f"{escape(title)}</text>" + "".join(_dot(y, *dot) for dot in _dots(case))
    )


def _dots(case: dict[str, Any]) -> Iterator[tuple[float, str, int]]:
    compiled = case["peers"].get("torch-compile", {}).get("samples")
    if compiled:
        eager = case["peers"]["torch-eager"]["samples"]
        ratios = sorted(a / b for a, b in zip(compiled, eager))
        yield ratios[len(ratios) // 2], "#9a6700", 17
    yield case["to_eager"], "#0969da", -9


def _dot(y: int, ratio: float, color: str, below: int) -> str:
    x = _x(ratio)
    return (
        f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{color}"/>'
        f'<text x="{x:.1f}" y="{y + below}" {SANS} font-size="10" fill="{color}" '
        f'text-anchor="middle">{ratio:.2g}</text>'
    )


def with_table(page: str) -> str:
    """docs/performance.md with the table of what was measured, a column a processor."""
    files = [RESULTS.with_name(f"cpu{name}.json") for name in ("", "-avx512", "-avx2")]
    runs = [json.loads(file.read_text("utf-8")) for file in files]
    first, second = (run["machine"]["cpu"].replace("(R)", "") for run in runs[:2])
    names = [first, f"{second.replace(' Processor', '')}, AVX-512", "the same, AVX2"]
    head = [f"| | {' | '.join(names)} |", "|---|" + "---:|" * len(runs)]
    cases = [{case["name"]: case for case in run["cases"]} for run in runs]
    rows = [
        f"| {title} | " + " | ".join(_beside(found[name]) for found in cases) + " |"
        for name, title in CASES.items()
    ]
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return "\n".join([before + MARKS[0], *head, *rows, MARKS[1] + after])


def _beside(case: dict[str, Any]) -> str:
    """The ratio of lucid_gpu's time to torch eager's, and both in milliseconds."""
    ours, theirs = (1e3 * case["peers"][peer]["median"] for peer in ("lucid_gpu", "torch-eager"))
    return f"**{case['to_eager']:.2g}** ({ours:.3g} / {theirs:.3g})"


def _svg(width: int, height: int, title: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>{body}</svg>\n'
    )


def pictures() -> dict[str, str]:
    """The contents of each picture, by its file's name."""
    return {"fused.svg": fused(), "speed.svg": speed(json.loads(RESULTS.read_text("utf-8")))}


if __name__ == "__main__":
    for name, text in pictures().items():
        (PICTURES / name).write_text(text, "utf-8")
        print(PICTURES / name)
    PERFORMANCE.write_text(with_table(PERFORMANCE.read_text("utf-8")), "utf-8")
    print(PERFORMANCE)
