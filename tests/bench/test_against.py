"""What became slower than in a kept run; all figures are made up."""

import json

import pytest

from bench import against, report, run
from bench.cases import CASES
from bench.peers import named

CHAIN, HEAT = named(CASES, ["chain-1024", "heat"], "case")


def made_up(case, ratios, speed=1.0):
    """A row whose rounds have these ratios to the baseline, on a machine so much slower."""
    theirs = [speed * (1 + 0.1 * i) for i in range(len(ratios))]
    peers = {
        "lucid_gpu": {"samples": [r * t for r, t in zip(ratios, theirs)]},
        case.baseline: {"samples": theirs},
    }
    return report.row(case, peers)


def runs(before, after, case=CHAIN, **more):
    return (
        report.document([made_up(case, before)], rounds=5),
        report.document([made_up(case, after, **more)], rounds=5),
    )


KEPT = [0.48, 0.49, 0.5, 0.51, 0.52]
TABLE = {
    "as it was": (KEPT, KEPT, False, False),
    "far apart": (KEPT, [0.6] * 5, True, False),
    "less than a twentieth": ([0.5] * 5, [0.52] * 5, False, False),
    "this run is noisy": (KEPT, [0.4, 0.5, 0.6, 0.7, 0.8], False, False),
    "the kept run was noisy": ([0.3, 0.4, 0.5, 0.65, 0.8], [0.6] * 5, False, False),
    "one round is slow": (KEPT, [0.48, 0.49, 0.5, 0.51, 5.0], False, False),
    "faster": (KEPT, [0.4] * 5, False, True),
}


@pytest.mark.parametrize("name", TABLE)
def test_beyond_both_runs_spreads(name):
    before, after, slower, faster = TABLE[name]
    ((change,), others) = against.changes(*runs(before, after))
    assert (change.slower, change.faster, others) == (slower, faster, [])


def test_a_slower_machine_is_no_slower_program():
    said = []
    assert not against.compare(*runs(KEPT, KEPT, speed=7.0), said.append)
    assert said[-1] == "nothing is slower"


def test_what_is_slower_is_named():
    said = []
    assert against.compare(*runs(KEPT, [0.6] * 5, case=HEAT), said.append)
    assert said[-1] == "slower: heat"
    assert "SLOWER     x 1.2   heat               0.6 (0.6 to 0.6), kept 0.5 (0.49 to 0.51)" in said


def test_other_versions_are_said():
    kept, new = runs(KEPT, KEPT)
    kept["machine"]["versions"] = {**kept["machine"]["versions"], "torch": "1.0"}
    said = []
    against.compare(kept, new, said.append)
    assert any(line.startswith("note: torch was 1.0 and is") for line in said)


def test_a_case_without_its_baseline_is_not_compared():
    kept, new = runs(KEPT, KEPT)
    del new["cases"][0]["peers"][CHAIN.baseline]
    said = []
    assert against.compare(kept, new, said.append)  # a check that compares nothing does not pass
    assert "not compared, for a run lacks them or their baseline: chain-1024" in said


@pytest.mark.parametrize(("after", "code"), [(KEPT, 0), ([0.6] * 5, 1)])
def test_the_command_ends_so(after, code, tmp_path, monkeypatch, capsys):
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(runs(KEPT, after)[0]))
    figures = made_up(CHAIN, after)["peers"]
    monkeypatch.setattr(run, "run_case", lambda *a, **k: figures)
    flags = ["--case", "chain-1024", "--peers", "lucid_gpu", "--no-results", "--against", str(kept)]
    for entry in figures.values():
        entry.update(median=1.0, low=1.0, high=1.0)
    assert run.main(flags) == code
    assert ("slower: chain-1024" in capsys.readouterr().out) == bool(code)


def test_the_kept_run_is_the_default_and_can_be_read():
    assert run.parser().parse_args(["--against"]).against == report.RESULTS / "cpu.json"
    kept = json.loads((report.RESULTS / "cpu.json").read_text())
    found, others = against.changes(kept, kept)
    assert len(found) + len(others) == len(kept["cases"]) and not others
    assert not any(change.slower or change.faster for change in found)


def test_a_file_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        run.main(["--against", "nowhere.json"])
    assert "nowhere.json" in capsys.readouterr().err
