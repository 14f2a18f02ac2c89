"""Run examples/tour.ipynb and keep what it shows: ``python tools/run_notebook.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
NOTEBOOK = TREE / "examples" / "tour.ipynb"


def executed() -> Any:
    """The notebook after its cells have run in a kernel; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    path = os.pathsep.join([str(TREE), os.environ.get("PYTHONPATH", "")])
    client = NotebookClient(notebook, timeout=250, kernel_name="python3", store_widget_state=False)
    client.execute(env={**os.environ, "PYTHONPATH": path}, cwd=str(TREE / "examples"))
    for cell in notebook.cells:
        cell.metadata = {}  # times of day
        for output in cell.get("outputs", []):
            # The state of a widget lives as long as its kernel; its text stays.
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return notebook


def main() -> None:
    """The command."""
    import nbformat

    nbformat.write(executed(), NOTEBOOK)
    print(f"{NOTEBOOK.relative_to(TREE)}: {NOTEBOOK.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
