"""The command that times what steps cost the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import host_costs


def test_a_case_is_timed_at_every_depth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(host_costs, "WARM", 1)
    monkeypatch.setattr(host_costs, "STEPS", 2)
    kept = tmp_path / "costs.json"
    assert host_costs.main(["--case", "cross entropy", "--json", str(kept)]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.split(" | ")[1:] == ["2", "4", "8", "layer |"] and row.startswith("| cross entropy")
    found = json.loads(kept.read_text())
    costs = found["rows"]["cross entropy"]
    assert found["over"] == "CPU" and all(us > 0 for us in list(costs.values())[:3])
    assert costs["layer"] == pytest.approx((costs["8"] - costs["2"]) / 6)


def test_a_case_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        host_costs.main(["--case", "ML"])
    assert "invalid choice: 'ML'" in capsys.readouterr().err
