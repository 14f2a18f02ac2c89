"""Names, signatures and attributes are the standard's, as array-api-strict has them."""

import inspect
import subprocess
import sys

import pytest

import lucid_gpu
import lucid_gpu.array_api as xp

strict = pytest.importorskip("array_api_strict", reason="`pip install array-api-strict`")

# what is array-api-strict's own, or of a later version of the standard
OTHER = {"ArrayAPIStrictFlags", "Device", "__version__", "broadcast_shapes", "isin"}
OTHER |= {name for name in strict.__all__ if name.endswith("_array_api_strict_flags")}
NO_TENSORS = {"uint16", "uint32", "uint64"}
LATER = {"eig", "eigvals", "EigResult"}
# axis also by position, as the next version has it; n by position, and no x1 and x2 (scikit-learn)
WIDER = {"expand_dims", "diff", "where"}


def functions():
    for extension in (None, "linalg", "fft"):
        names = (getattr(strict, extension) if extension else strict).__all__
        for name in set(names) - OTHER - NO_TENSORS - LATER - WIDER:
            yield pytest.param(extension, name, id=f"{extension or 'main'}.{name}")


@pytest.mark.parametrize(("extension", "name"), sorted(functions(), key=lambda p: p.id))
def test_signatures(extension, name):
    wanted = getattr(getattr(strict, extension) if extension else strict, name)
    found = getattr(getattr(xp, extension) if extension else xp, name)
    if not inspect.isroutine(wanted):
        assert callable(found) == callable(wanted)
        return
    assert parameters(found) == parameters(wanted)


def parameters(function):
    """Kinds, names where they count, and defaults; strict has a default that means none."""
    return [
        (
            p.kind,
            p.name if p.kind is not p.POSITIONAL_ONLY else "",
            None if "Undef" in repr(p.default) else p.default,
        )
        for p in inspect.signature(function).parameters.values()
    ]


def test_the_array_has_the_attributes_of_the_standard():
    x = lucid_gpu.tensor([[1, 2], [3, 4]])
    public = [n for n in dir(strict.asarray([[1, 2], [3, 4]])) if not n.startswith("_")]
    operators = [n for n in vars(strict._array_object.Array) if n.startswith("__")]
    own = {"__slots__", "__annotations__", "__buffer__", "__static_attributes__"}
    own |= {"__firstlineno__", "__weakref__"}
    for name in {*public, *operators} - own:
        assert hasattr(x, name), name


def test_the_namespace(device):
    x = lucid_gpu.tensor([1.0], device=device)
    assert x.__array_namespace__() is xp is lucid_gpu.array_api
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="api_version must be one of 2021.12"):
        x.__array_namespace__(api_version="2031.12")
    assert xp.__array_api_version__ == "2024.12"
    assert set(xp.__all__) <= set(dir(xp))


def test_what_the_namespace_says_of_itself(device):
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert info.default_device() == lucid_gpu.device("cpu")
    assert lucid_gpu.ones(1, device=device).device in info.devices()
    assert info.default_dtypes(device=device) == {
        "real floating": lucid_gpu.float32,
        "complex floating": lucid_gpu.complex64,
        "integral": lucid_gpu.int64,
        "indexing": lucid_gpu.int64,
    }
    assert set(info.dtypes(kind="integral")) == {"int8", "int16", "int32", "int64", "uint8"}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {
        "bool",
        "complex64",
        "complex128",
    }
    assert set(info.dtypes()) & {"uint16", "uint32", "uint64"} == set()


def test_to_device(device):
    x = lucid_gpu.ones(2, requires_grad=True)
    y = x.to_device(device)
    assert y.device.type == device
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]
    with pytest.raises(ValueError, match="current stream"):
        x.to_device(device, stream=3)


def test_in_place_operators(device):
    x = lucid_gpu.tensor([[1, 2], [3, 4]], device=device)
    kept = x
    x @= lucid_gpu.tensor([[0, 1], [1, 0]], device=device)
    x <<= 2
    x >>= 1
    assert x is kept
    assert x.tolist() == [[4, 2], [8, 6]]


def test_it_is_imported_when_asked_for():
    script = (
        "import lucid_gpu, sys; t = lucid_gpu.ones(1);"
        "assert 'lucid_gpu.array_api' not in sys.modules and 'lucid_gpu.numpy' not in sys.modules;"
        "t.__array_namespace__(); assert 'lucid_gpu.array_api' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_calls_that_the_standard_does_not_have():
    x = xp.asarray([0, 1, 4])
    assert xp.diff(x, 2).tolist() == [2]
    assert xp.where(x)[0].tolist() == [1, 2]
    assert xp.expand_dims(x, 0).shape == (1, 3)
    assert xp.searchsorted(x[:2] > 0, x > 0).tolist() == [0, 1, 1]
