"""Verdicts, the table, the files, the command line."""

import json

import pytest

from bench import report, run
from bench.cases import CASES
from bench.peers import PEERS, named

CHAIN, MEMORY = named(CASES, ["chain-2^24", "memory"], "case")


def figures(median, **more):
    return {"median": median, "low": median, "high": median, "samples": [median], **more}


@pytest.mark.parametrize(
    ("ours", "eager", "compiled", "wanted"),
    [
        (figures(0.05), figures(1.0), figures(0.2), "pass"),
        (figures(0.05), figures(1.0), figures(0.06), "missed"),  # half of compile is asked too
        (figures(0.07), figures(1.0), figures(1.0), "missed"),
        (figures(0.05), figures(1.0), {}, "not measured"),
        ({"failed": "wrong result"}, figures(1.0), figures(1.0), "failed"),
    ],
)
def test_verdict_of_a_time(ours, eager, compiled, wanted):
    peers = {"lucid_gpu": ours, "torch-eager": eager, "torch-compile": compiled}
    assert report.row(CHAIN, peers)["verdict"] == wanted


def test_verdict_of_an_amount_needs_no_peer():
    assert report.row(MEMORY, {"lucid_gpu": figures(3.4)})["verdict"] == "pass"
    assert report.row(MEMORY, {"lucid_gpu": figures(3.6)})["verdict"] == "missed"


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (1.5, "s", "1.5 s"),
        (0.0236, "s", "23.6 ms"),
        (90e-6, "s", "90 us"),
        (3.5, "arrays", "3.5 arrays"),
    ],
)
def test_amounts_have_a_readable_unit(value, unit, wanted):
    assert report.amount(value, unit) == wanted


def test_a_noisy_peer_is_marked():
    peers = {"lucid_gpu": figures(0.05), "torch-eager": figures(1.0, spread=0.5)}
    row = report.row(MEMORY, peers)
    assert "(noisy)" in report.markdown(report.document([row], rounds=3))


def document():
    peers = {
        "lucid_gpu": figures(0.05, error=1e-7),
        "torch-eager": figures(1.0),
        "torch-compile": {"failed": "no compiler"},
    }
    return report.document([report.row(CHAIN, peers)], rounds=3)


def test_the_table_says_it_all():
    text = report.markdown(document())
    assert "50 ms (50 to 50)" in text
    assert "0.06 of eager, 0.5 of compile" in text
    assert "torch.compile: no compiler" in text
    assert "1.0e-07 (chain-2^24)" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


def test_files_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    written = report.write(document(), tmp_path / "some" / "run")
    assert [p.name for p in written] == ["run.json", "run.md", "run.png"]
    assert json.loads(written[0].read_text())["cases"][0]["name"] == "chain-2^24"


def test_an_unknown_case_is_named(capsys):
    with pytest.raises(SystemExit) as end:
        run.main(["--case", "nothing"])
    assert end.value.code == 2
    assert "no case 'nothing'; there are: chain-2^24" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        ([], {"lucid_gpu", "torch-eager", "torch-compile", "hips"}),
        (["--peers", "jax,lucid_gpu"], {"lucid_gpu", "jax"}),
        (["--peers", "all"], {p.name for p in PEERS}),
        (["--device", "cuda"], {"lucid_gpu", "torch-eager", "torch-compile"}),
    ],
)
def test_who_takes_part(flag, wanted, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(run.cupy_backend, "problem", lambda: None)
    measured = {"lucid_gpu": figures(0.5), "torch-eager": figures(1.0), "jax": figures(0.25)}
    monkeypatch.setattr(run, "installed", lambda module: True)
    monkeypatch.setattr(
        run, "run_case", lambda case, peers, *_, **__: asked.extend(peers) or measured
    )
    run.main(["--case", "chain-64", "--no-results", *flag])
    assert {p.name for p in asked} == wanted
    printed = capsys.readouterr()
    assert "| case | lucid_gpu | torch eager | JAX | to eager" in printed.out
    assert ("HIPS autograd computes on the CPU here and is left out" in printed.err) == (
        "cuda" in flag
    )


def test_without_a_gpu_nothing_is_measured_there(monkeypatch, capsys):
    monkeypatch.setattr(run.cupy_backend, "problem", lambda: "there is none; buy one")
    with pytest.raises(SystemExit):
        run.main(["--device", "cuda"])
    assert "--device cuda: there is none; buy one" in capsys.readouterr().err


def test_exit_code():
    rows = [{"verdict": "pass"}, {"verdict": "missed"}]
    assert run.exit_code(rows, strict=False) == 0
    assert run.exit_code(rows, strict=True) == 1
    assert run.exit_code([{"verdict": "failed"}], strict=False) == 1


def test_a_ratio_compares_figures_of_one_round():
    ours, theirs = [1.0, 10.0, 10.0], [2.0, 2.0, 20.0]  # slow in the last two rounds, in the last
    figures = {"lucid_gpu": {"samples": ours}, "torch-eager": {"samples": theirs}}
    assert report.ratio(figures, "torch-eager") == 0.5
    assert report.ratio(figures, "torch-eager", "torch-eager") == 1
    assert report.ratio({**figures, "torch-eager": {"samples": [2.0]}}, "torch-eager") is None
    assert report.ratio(figures, "hips") is None
