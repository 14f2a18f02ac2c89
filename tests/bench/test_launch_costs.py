"""The command that counts and times the way to a launch; it measures over tests/driver only."""

from __future__ import annotations

import pytest

from bench import launch_costs


def test_without_the_stand_in_it_says_how_it_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LUCID_DRIVER_STANDIN", raising=False)
    with pytest.raises(SystemExit):
        launch_costs.main([])
    assert "python tests/driver/build.py bench.launch_costs" in capsys.readouterr().err


def test_functions_are_counted_pythons_and_cs() -> None:
    def step() -> None:
        max(1, abs(2))

    both = ("call", "c_call")
    counted = launch_costs.python_calls
    assert counted(step, both) - counted(lambda: None, both) == 2
    assert counted(step) == counted(lambda: None)


def test_the_table_has_a_column_a_figure() -> None:
    row = dict.fromkeys(launch_costs.HEADS, 1234.4)
    before = {"a case": {**row, "us": 2000.0}}
    for kept, us in (({}, "1,234"), (before, "1,234 (2,000)")):
        line = launch_costs.table({"a case": row}, kept).splitlines()[2]
        cells = ["1,234"] * (len(launch_costs.HEADS) - 2)
        assert line == "| a case | " + " | ".join([*cells, us, "1,234"]) + " |"
