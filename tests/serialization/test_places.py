"""What packages take from `serialization` beside `save` and `load`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import lucid_gpu
from lucid_gpu import serialization


def test_a_checkpoint_is_placed_as_fairseq_writes_it(tmp_path: Path) -> None:
    lucid_gpu.save({"w": lucid_gpu.arange(3.0)}, tmp_path / "x.pt")
    restore = serialization.default_restore_location
    read = lucid_gpu.load(tmp_path / "x.pt", map_location=lambda s, _: restore(s, "cpu"))
    assert read["w"].tolist() == [0.0, 1.0, 2.0]


def test_where_tensors_and_storages_are(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    for holder in (x, x.untyped_storage()):
        assert serialization.location_tag(holder) == str(x.device)
        assert serialization.default_restore_location(holder, "cpu").device.type == "cpu"
        assert serialization.default_restore_location(holder, str(x.device)).device == x.device


def test_places_that_are_not_here() -> None:
    for holder in (lucid_gpu.ones(2), lucid_gpu.ones(2).untyped_storage()):
        with pytest.raises(RuntimeError, match=r"restore data location of .* \(tagged with ipu\)"):
            serialization.default_restore_location(holder, "ipu")


def test_versions_of_modules() -> None:
    module = ModuleType("m")
    module.__version__ = "1.12.3"  # type: ignore[attr-defined]
    check = serialization.check_module_version_greater_or_equal
    assert check(module, (1, 12)) and check(module, (1, 9, 9)) and not check(module, (1, 13))
    with pytest.raises(RuntimeError, match="'m' module version string is malformed '1.12.3'"):
        check(module, (1, 12, 3, 0))
    with pytest.warns(UserWarning, match="continuing assuming that requirement is met"):
        assert check(module, (1, 12, 3, 0), error_if_malformed=False)
    assert serialization.get_default_load_endianness() is None
