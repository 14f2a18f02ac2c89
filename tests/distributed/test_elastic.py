"""`record`: what a process failed of, in the file that its starter named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lucid_gpu.distributed.elastic.multiprocessing.errors import record


def fails(value: int) -> int:
    if value < 0:
        raise ValueError("boom")
    return value


def test_a_failure_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "rank0" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    main = record(fails)
    assert main(3) == 3 and not file.exists() and main.__name__ == "fails"
    with pytest.raises(ValueError, match="boom"):
        main(-1)
    message = json.loads(file.read_text())["message"]
    assert message["message"] == "ValueError: boom"
    assert "in fails" in message["extraInfo"]["py_callstack"]


def test_without_a_file_it_only_raises(monkeypatch: Any) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(ValueError, match="boom"):
        record(fails)(-1)


def test_the_file_is_as_torch_s(tmp_path: Path, monkeypatch: Any) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    found = []
    for name, decorate in (("ours", record), ("theirs", errors.record)):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / name))
        with pytest.raises(ValueError, match="boom"):
            decorate(fails)(-1)
        found.append(json.loads((tmp_path / name).read_text())["message"])
    ours, theirs = found
    assert ours["message"] == theirs["message"]
    assert set(ours["extraInfo"]) == set(theirs["extraInfo"])
