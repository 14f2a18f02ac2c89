"""What a change of the code's structure must not change: signatures, messages, generated CUDA C.

Where a change is meant, ``make snapshots`` writes the files anew and ``git diff`` shows it.
"""

from __future__ import annotations

import pytest

from tools import take_snapshots


@pytest.mark.parametrize("name", take_snapshots.SNAPSHOTS)
def test_nothing_changed_that_was_not_meant_to(name: str) -> None:
    changed = take_snapshots.changes(name)
    assert not changed, "\n".join([*changed[:40], "make snapshots, where this is meant"])


def test_a_change_is_seen(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(take_snapshots, "FOLDER", tmp_path)
    lines = take_snapshots.messages()
    monkeypatch.setitem(take_snapshots.SNAPSHOTS, "messages", lambda: lines)
    assert "ValueError: {} is not a valid value for reduction" in lines
    (tmp_path / "messages.txt").write_text("\n".join([*lines[1:], "ValueError: gone"]))
    assert take_snapshots.changes("messages") == [f"+{lines[0]}", "-ValueError: gone"]
