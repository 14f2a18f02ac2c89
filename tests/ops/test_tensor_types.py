"""FloatTensor and its kin, Tensor(...), .type(), and the defaults, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import gives, modules, same_error, torch_module

NAMES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")


def about(x: Any, values: bool = True) -> Any:
    """What must agree; the package's own name stands in type names."""
    kind = x.type().split(".")[-1]
    return kind, str(x.dtype).split(".")[-1], list(x.shape), x.tolist() if values else None


MADE: tuple[tuple[Any, bool], ...] = (
    (lambda t, m: t([1, 2]), True),
    (lambda t, m: t((1, 0, 1)), True),
    (lambda t, m: t([[1, 0], [0, 1]]), True),
    (lambda t, m: t(np.array([1.0, 0.0])), True),
    (lambda t, m: t(), True),
    (lambda t, m: t([]), True),
    (lambda t, m: t(2, 3), False),
    (lambda t, m: t(3), False),
    (lambda t, m: t(m.Size([2, 1])), False),
    (lambda t, m: t(m.ones(3, 2).size()), False),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_type_makes(name: str) -> None:
    for make, values in MADE:
        results = []
        for module, _ in modules():
            kind = getattr(module, f"{name}Tensor")
            made = make(kind, module)
            assert isinstance(made, kind) and isinstance(made, module.Tensor)
            results.append(about(made, values))
        assert all(r == results[0] for r in results), results


def test_the_general_constructor() -> None:
    for make, values in MADE:
        found = [about(make(module.Tensor, module), values) for module, _ in modules()]
        assert all(f == found[0] for f in found), found
    for module, _ in modules():
        whole = module.arange(3)
        assert module.Tensor(whole).dtype == module.int64
        assert tuple(module.Tensor(size=(2, 3)).shape) == (2, 3)
        again = module.Tensor(whole)
        again[0] = 7
        assert whole.tolist() == [7, 1, 2]


def test_a_subclass_is_constructed_too() -> None:
    class Named(lucid_gpu.Tensor):
        """One with a name."""

    made = Named([1.0, 2.0])
    assert type(made) is Named and made.tolist() == [1.0, 2.0]


def test_types_by_name_and_back(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    where = "" if device == "cpu" else "cuda."
    assert x.type() == f"lucid_gpu.{where}FloatTensor"
    assert x.type("torch.DoubleTensor" if device == "cpu" else "lucid_gpu.cuda.DoubleTensor").dtype
    assert x.type(lucid_gpu.int64).dtype is lucid_gpu.int64
    assert x.type(lucid_gpu.LongTensor).type() == "lucid_gpu.LongTensor"
    assert x.long().type(x.type()).type() == x.type()
    assert x.byte().dtype is lucid_gpu.uint8 and x.char().dtype is lucid_gpu.int8
    assert x.type(float).dtype is lucid_gpu.float64
    assert x.long().type(lucid_gpu.Tensor).type() == "lucid_gpu.FloatTensor"
    assert (x * 1j).type().endswith("ComplexFloatTensor")
    assert x.double().new([1, 2]).dtype is lucid_gpu.float64
    assert x.new(2, 3).device == x.device and tuple(x.new(2, 3).shape) == (2, 3)
    kind = lucid_gpu.FloatTensor if device == "cpu" else lucid_gpu.cuda.FloatTensor
    assert isinstance(x, kind) and not isinstance(x.double(), kind) and not isinstance(3, kind)
    assert isinstance(x, lucid_gpu.FloatTensor) is (device == "cpu")


REFUSED: tuple[tuple[Any, str], ...] = (
    (lambda m: m.FloatTensor(2.5), "new(): data must be a sequence (got float)"),
    (lambda m: m.FloatTensor("a"), "new(): invalid data type 'str'"),
    (lambda m: m.FloatTensor(-1), "negative dimension -1"),
    (lambda m: m.FloatTensor([[1], [2, 3]]), "expected sequence"),
    (lambda m: m.FloatTensor(m.ones(2).double()), "expected"),
    (lambda m: m.FloatTensor(2, device="cuda"), "legacy constructor expects device type: cpu"),
    (lambda m: m.Tensor(3.5), "new(): data must be a sequence (got float)"),
    (lambda m: m.Tensor([1], dtype=m.float32), "new() received an invalid combination"),
    (lambda m: m.ones(1).type("torch.Foo"), "invalid type: 'torch.Foo'"),
    (lambda m: m.ones(1).type(3), "dtype must be a type, str, or dtype object"),
    (lambda m: m.set_default_tensor_type(m.LongTensor), "only floating-point types are supported"),
    (lambda m: m.use_deterministic_algorithms(3), "argument 'mode' (position 1) must be bool"),
    (lambda m: m.set_deterministic_debug_mode("x"), "debug_mode"),
    (lambda m: m.finfo(m.int8), "requires a floating point input type"),
    (lambda m: m.iinfo(m.float32), "requires an integer input type"),
)


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case: int) -> None:
    same_error(*REFUSED[case])


@pytest.fixture
def defaults() -> Iterator[None]:
    """Defaults are put back, whatever a test made of them."""
    yield
    for module, _ in modules():
        module.set_default_dtype(module.float32)
        module.set_default_device(None)
        module.use_deterministic_algorithms(False)


def test_default_types(defaults: None) -> None:
    for module, _ in modules():
        module.set_default_tensor_type(module.DoubleTensor)
        assert module.ones(1).dtype == module.float64
        assert module.Tensor([1]).dtype == module.float64
        module.set_default_tensor_type("torch.FloatTensor")
        assert module.ones(1).dtype == module.float32


def test_default_devices(device: str, defaults: None) -> None:
    where = lucid_gpu.device(device)
    assert lucid_gpu.get_default_device().type == "cpu"
    with where:
        assert lucid_gpu.zeros(2).device.type == where.type
        assert lucid_gpu.tensor([1]).device.type == where.type
        assert lucid_gpu.randn(2).device.type == where.type
        assert lucid_gpu.nn.Linear(2, 2).weight.device.type == where.type
        with lucid_gpu.device("cpu"):
            assert lucid_gpu.arange(2).device.type == "cpu"
    assert lucid_gpu.zeros(2).device.type == "cpu"
    lucid_gpu.set_default_device(device)
    assert lucid_gpu.get_default_device().type == where.type
    assert lucid_gpu.ones(2).device.type == where.type


def test_determinism_is_remembered(defaults: None) -> None:
    for module, _ in modules():
        module.use_deterministic_algorithms(True, warn_only=True)
        assert module.are_deterministic_algorithms_enabled()
        assert module.is_deterministic_algorithms_warn_only_enabled()
        module.set_deterministic_debug_mode("error")
        assert module.get_deterministic_debug_mode() == 2
        assert not module.is_deterministic_algorithms_warn_only_enabled()
        module.use_deterministic_algorithms(False, warn_only=True)
        assert module.is_deterministic_algorithms_warn_only_enabled()
        assert module.get_deterministic_debug_mode() == 0


@pytest.mark.parametrize("name", ["float32", "int16", "bool", "complex64"])
def test_memory_grows_by_what_empty_is_filled_with(defaults: None, device: str, name: str) -> None:
    results = []
    for module, where in modules(device):
        module.use_deterministic_algorithms(True)
        x = module.ones(2, 3, dtype=getattr(module, name), device=where)
        row = x[1].resize_(2, 4)  # its memory ends within it
        module.use_deterministic_algorithms(False)
        results.append(str((row.tolist(), x.tolist(), x.resize_(2).tolist())))
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "bool", "uint8", "int64"])
def test_memory_nobody_wrote_is_filled_under_determinism(
    dtype: str, device: str, defaults: None
) -> None:
    def made(m: Any, where: str) -> list[str]:
        m.use_deterministic_algorithms(True)
        d = getattr(m, dtype)
        like = m.ones(2, dtype=d, device=where)
        several = [
            m.empty(2, dtype=d, device=where), m.empty_like(like), like.new_empty(2),
            m.empty_strided((2,), (3,), dtype=d, device=where), m.empty(2, out=like[:0].clone()),
            like.clone().resize_(3, 2), like.clone()[1:].resize_(4),
        ]  # fmt: skip
        m.utils.deterministic.fill_uninitialized_memory = False
        assert m.empty(2, dtype=d).shape == (2,)
        m.utils.deterministic.fill_uninitialized_memory = True
        assert m.ones(3).sum() == 3
        return [str(t.tolist()) for t in several]

    assert made(lucid_gpu, device) == made(torch_module(), "cpu")
    same_error(lambda m: setattr(m.utils.deterministic, "fill_uninitialized_memory", 1), "a bool")


FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64")


def test_limits() -> None:
    found = []
    for module, _ in modules():
        limits = [module.finfo(getattr(module, name)) for name in FLOATS]
        whole = [module.iinfo(getattr(module, f"{u}int{n}"))
                 for u, n in (("u", 8), ("", 8), ("", 16), ("", 32), ("", 64))]  # fmt: skip
        numbers = [(f.eps, f.max, f.min, f.tiny, f.smallest_normal, f.resolution, f.bits)
                   for f in limits]  # fmt: skip
        found.append([numbers, [repr(x) for x in limits + whole], module.finfo().eps])
    assert all(f == found[0] for f in found)


def test_what_can_be_cast() -> None:
    names = ("bool", "uint8", "int8", "int64", "float16", "float64", "complex64")
    tables = []
    for module, _ in modules():
        kinds = [getattr(module, n) for n in names]
        tables.append([[module.can_cast(a, b) for b in kinds] for a in kinds])
    assert all(t == tables[0] for t in tables)
    for module, _ in modules():
        assert module.float64.to_complex() == module.complex128
        assert module.complex64.to_real() == module.float32
        assert (module.e, module.pi, module.inf, module.newaxis) == (
            np.e, np.pi, float("inf"), None,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["bool", "uint8", "int64"])
def test_integers_have_no_complex_type(name: str) -> None:
    same_error(lambda m: getattr(m, name).to_complex(), "Unknown Complex ScalarType for ")


def test_compile_gives_back_what_it_takes() -> None:
    def double(x: Any) -> Any:
        return x * 2

    model = lucid_gpu.nn.Linear(2, 2)
    assert lucid_gpu.compile(model, mode="max-autotune") is model
    assert lucid_gpu.compile(double) is double
    assert lucid_gpu.compile(fullgraph=True)(double) is double
    assert lucid_gpu.compiler.disable(double) is double
    assert not lucid_gpu.compiler.is_compiling()
    with pytest.raises(RuntimeError, match="takes a module or a function, got int"):
        lucid_gpu.compile(3)


def test_settings_of_libraries_can_be_made() -> None:
    cudnn = lucid_gpu.backends.cudnn
    with cudnn.flags():
        assert not cudnn.enabled and cudnn.deterministic
        cudnn.benchmark = True
        cudnn.deterministic = False
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (True, False, True)
    assert cudnn.is_available() == (cudnn.version() is not None)
    assert not cudnn.is_acceptable(lucid_gpu.ones(1))
    assert not lucid_gpu.backends.mps.is_available() and not lucid_gpu.backends.mps.is_built()


@pytest.mark.parametrize("name", ["enabled", "benchmark", "deterministic", "allow_tf32"])
def test_settings_of_cudnn_are_bools(name: str) -> None:
    before = getattr(lucid_gpu.backends.cudnn, name)
    same_error(lambda m: setattr(m.backends.cudnn, name, 1), "expects a bool, but got int")
    assert getattr(lucid_gpu.backends.cudnn, name) == before


LEGACY_DEVICES = {
    "Tensor": lambda m: m.Tensor,
    "FloatTensor": lambda m: m.FloatTensor,
    "new": lambda m: m.tensor(1.0).new,
}


@pytest.mark.parametrize("where", ["cpu", "meta", "cuda"])
@pytest.mark.parametrize("name", LEGACY_DEVICES)
def test_where_legacy_constructors_make_their_tensors(name: str, where: str) -> None:
    made: tuple[Any, ...] = (
        lambda m: (),
        lambda m: (2, 3),
        lambda m: (m.Size([2, 3]),),
        lambda m: ([1.0],),
        lambda m: (m.ones(1),),
    )
    for arguments in made:
        outcomes = []
        for m, _ in modules():
            try:
                x = LEGACY_DEVICES[name](m)(*arguments(m), device=where)
                outcomes.append((list(x.shape), x.device.type))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert all(other == outcomes[0] for other in outcomes)


def test_types_of_tensors_are_no_base_types() -> None:
    same_error(lambda m: type("Mine", (m.FloatTensor,), {}), "is not an acceptable base type")
    same_error(lambda m: m.LongTensor((6, 0), 1, 1, 0), "invalid combination of arguments")


def _described(t):
    node = None if t.grad_fn is None else type(t.grad_fn).__name__
    return type(t).__name__, node, t.requires_grad, t.is_leaf, t._is_view()


def test_constructors_of_a_tensor_are_views_with_its_history(device):
    def run(m, device):
        class Sub(m.Tensor):
            pass

        x = m.tensor([1.0, 2.0], device=device, requires_grad=True)
        results = []
        for make in (m.Tensor, x.new, Sub, lambda t: t.as_subclass(Sub)):
            y = x * 2
            for source in (x, y, y.detach()):
                results.append(_described(make(source)))
            made = make(y)
            made.mul_(3)
            with m.no_grad():
                results.append(_described(make(x)))
            (y * made).sum().backward()
            results += [y.detach(), made.detach(), x.grad.clone()]
            x.grad = None
        return results

    gives(run(lucid_gpu, device), run, device)


def test_a_typed_constructor_is_a_view_with_its_history() -> None:
    def run(m: Any, device: str) -> Any:
        return _described(m.FloatTensor(m.ones(2, requires_grad=True) * 2))

    gives(run(lucid_gpu, "cpu"), run)


def test_constructors_of_batches_and_tangents():
    x = lucid_gpu.ones(2, 3)
    assert lucid_gpu.func.vmap(lambda a: lucid_gpu.Tensor(a) * 2)(x).tolist() == [[2.0] * 3] * 2
    tangent = lucid_gpu.func.jvp(lambda a: a.new(a) * 3, (x,), (x,))[1]
    assert tangent.tolist() == [[3.0] * 3] * 2
