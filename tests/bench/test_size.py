"""Bytes on the disk: what is required, what counts."""

from importlib import metadata

from bench import size
from bench.cases import CASES
from bench.peers import PEERS, TREE, named
from bench.rounds import modules, run_case

REQUIRES = {
    "model": ["core>=2", "plots; extra == 'all'", "old; python_version < '3'", "Core.Math[fast]"],
    "core": ["model"],  # a circle
    "core-math": ["threads; extra == 'fast'", "docs; extra == 'docs'", "core"],
    "threads": None,
}


def test_what_is_required(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES[name])
    assert size.required("model") == {"model", "core", "core-math", "threads"}
    assert size.required("core-math") == {"core-math", "core", "model", "threads"}


def test_bytecode_and_folders_do_not_count(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    for name in ("a.py", "a.pyc"):
        (tmp_path / name).write_bytes(bytes(100))
    monkeypatch.setattr(size, "required", lambda name: {"a"})
    monkeypatch.setattr(size, "files", lambda name: [*tmp_path.iterdir(), tmp_path / "gone.py"])
    assert size.installed_bytes("a") == 100


def test_lucid_gpu_is_this_tree_and_numpy():
    assert TREE / "lucid_gpu" / "__init__.py" in set(size.files("lucid-gpu"))
    assert {"lucid-gpu", "numpy", "ml-dtypes"} == size.required("lucid_gpu")


def test_the_case():
    (case,) = named(CASES, ["size"], "case")
    figures = run_case(case, named(PEERS, ["lucid_gpu"], "peer"), rounds=1)
    assert 10 < figures["lucid_gpu"]["median"] < 200
    assert case.unit == "MB"


def test_a_module_is_measured_once():
    assert [p.name for p in modules(PEERS).values() if p.module == "torch"] == ["torch-eager"]
