"""What the examples reach: ``python -m bench.examples [NAME ...]`` runs them as a user would.

Each runs from scratch with its defaults, and its last line, ``what: number``, becomes a row of
``bench/results/examples.json`` and ``examples.md``; rows of examples not run stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.peers import TREE
from bench.report import RESULTS, machine

# name: the command, its data
EXAMPLES = {
    "mlp": ("train_digits.py", "1,797 scanned digits (scikit-learn)"),
    "cnn": ("train_digits.py --model cnn", "the same"),
    "char_gpt": ("char_gpt.py", "the modules of Python's standard library"),
    "vae": ("vae.py", "the same digits"),
    "diffusion": ("diffusion.py", "the same digits"),
    "recurrence": ("recurrence.py", "the same digits, pixel by pixel"),
    "gcn": ("gcn.py", "the same digits as a graph of neighbors, 5 labels per digit"),
    "burgers": ("burgers.py", "none: Burgers' equation, compared with its analytic solution"),
    "fourier": ("fourier.py", "none: Burgers' equation, 1,200 initial values"),
    "wasserstein": ("wasserstein.py", "none: points on two spirals"),
    "gaussian_process": (
        "gaussian_process.py",
        "442 patients with diabetes (scikit-learn)",
    ),
    "lotka_volterra": (
        "lotka_volterra.py",
        "42 counts of hares and lynxes, 1900 to 1920; with SciPy's functions",
    ),
    "heat": ("heat.py", "none: the heat equation inverted, noise 1e-3; in NumPy's functions"),
    "quantum_dot": (
        "quantum_dot.py",
        "none: two electrons, compared with the exact energy; in NumPy's functions",
    ),
    "nile": (
        "nile.py",
        "the yearly flow of the Nile, 1871 to 1970; in SciPy's and NumPy's functions",
    ),
    "registration": (
        "registration.py",
        "a photograph (scikit-learn), turned and bent; in SciPy's and NumPy's functions",
    ),
}


def measured(name: str, *more: str) -> dict[str, Any]:
    """Run one example from scratch; what it leaves is in runs/."""
    here = machine()
    command, _ = EXAMPLES[name]
    script, *flags = command.split()
    ended = subprocess.run(
        [sys.executable, str(TREE / "examples" / script), *flags, *more, "--device", "cpu"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    sys.stdout.write(ended.stdout)
    what, _, value = ended.stdout.splitlines()[-1].rpartition(": ")
    used = re.search(r"^processor time: (\d+) s$", ended.stdout, re.MULTILINE)
    assert used is not None
    torch = re.search(r"^torch, .*: (\S+)$", ended.stdout, re.MULTILINE)
    copy_pictures(script)
    return {
        "what": what,
        "value": value,
        "torch": torch[1] if torch else None,
        "processor_seconds": int(used[1]),
        "date": datetime.date.today().isoformat(),
        "machine": {name: here[name] for name in ("cpu", "python")},
    }


def copy_pictures(script: str) -> None:
    """What the example drew becomes the picture of docs/examples.md, of 64 colors."""
    from PIL import Image

    name = Path(script).stem
    folder = TREE / "runs" / ("digits" if name == "train_digits" else name)
    (picture,) = folder.glob("*.png")
    few = Image.open(picture).convert("RGB").quantize(64)
    few.save(TREE / "docs" / "pictures" / f"example_{name}.png", optimize=True)


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def row(name: str, result: dict[str, Any] | None) -> str:
    """A line of the table, here and in docs/examples.md."""
    command, data = EXAMPLES[name]
    if result is None:
        return f"| `{command}` | {data} | not run since it was changed | | |"
    reached = f"{result['what']} {result['value']}"
    torch = result.get("torch") or ("cannot" if "'s functions" in data else "not run")
    return (
        f"| `{command}` | {data} | {reached} | {torch} | {duration(result['processor_seconds'])} |"
    )


def markdown(results: dict[str, Any]) -> str:
    """The table, and where its figures come from."""
    done = {name: results[name] for name in EXAMPLES if name in results}
    places = {"{cpu}, Python {python}".format(**result["machine"]) for result in done.values()}
    days = sorted({result["date"] for result in done.values()})
    dates = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    return f"""Written by `python -m bench.examples`, {dates}, {"; ".join(sorted(places))}.
Each example from scratch with its defaults, on the CPU. The time is that of all threads
together, without torch's; other programs ran on the machines, so that it is approximate.

| examples/ | data | reached | torch reached | processor time |
|---|---|---|---|---|
""" + "".join(row(name, results.get(name)) + "\n" for name in EXAMPLES)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Run the examples and note what they reach.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXAMPLES)}")
    parser.add_argument("--alone", action="store_true", help="without torch")
    args = parser.parse_args()
    names = args.names or list(EXAMPLES)
    if wrong := [name for name in names if name not in EXAMPLES]:
        parser.error(f"there is no example {wrong[0]}; there are {', '.join(EXAMPLES)}")
    file = RESULTS / "examples.json"
    for name in names:
        result = measured(name, *["--alone"] * args.alone)
        results = json.loads(file.read_text("utf-8")) if file.exists() else {}
        results[name] = result
        file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        (RESULTS / "examples.md").write_text(markdown(results), "utf-8")


if __name__ == "__main__":
    main()
