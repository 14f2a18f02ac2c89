"""The table of what the examples reach."""

import json

from bench.examples import EXAMPLES, duration, markdown
from bench.peers import TREE
from bench.report import RESULTS


def test_the_table_is_made_of_the_figures():
    figures = json.loads((RESULTS / "examples.json").read_text("utf-8"))
    assert (RESULTS / "examples.md").read_text("utf-8") == markdown(figures)
    assert set(figures) <= set(EXAMPLES)


def test_every_example_is_in_it():
    scripts = {
        p.name for p in (TREE / "examples").glob("*.py") if "__main__" in p.read_text("utf-8")
    }
    assert {command.split()[0] for command, _ in EXAMPLES.values()} == scripts


def test_durations():
    assert [duration(s) for s in (0.4, 99.4, 100, 150, 600)] == [
        "0 s",
        "99 s",
        "2 min",
        "2 min",
        "10 min",
    ]
