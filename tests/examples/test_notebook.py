"""examples/tour.ipynb runs in a real kernel, and what it keeps is what it shows."""

import json

import pytest

pytest.importorskip("nbclient", reason="pip install '.[notebook]'")
pytest.importorskip("ipykernel", reason="pip install '.[notebook]'")
pytest.importorskip("tqdm", reason="pip install '.[train]'")

from tools.run_notebook import NOTEBOOK, executed


def shown(notebook):
    """Kind and text of every output; pictures of a step have times of their own."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            yield output["output_type"], sorted(data), "".join(output.get("text", ""))


@pytest.mark.timeout(280)
def test_the_notebook_runs_and_keeps_what_it_shows():
    kept = json.loads(NOTEBOOK.read_text("utf-8"))
    ran = executed()
    assert list(shown(ran)) == list(shown(kept)), "run python tools/run_notebook.py"
    kinds = [kind for _, data, _ in shown(ran) for kind in data]
    assert kinds.count("image/svg+xml") == 2 and "text/html" in kinds


def test_the_notebook_is_light():
    assert NOTEBOOK.stat().st_size < 60_000
