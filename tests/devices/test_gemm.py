"""Matrix products through cuBLAS, where there is none: its calls are carried out by NumPy."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.devices import gemm, reordering
from lucid_gpu.dtypes import from_numpy_dtype

TYPES = {
    0: np.float32, 1: np.float64, 2: np.float16, 4: np.complex64, 5: np.complex128,
    14: ml_dtypes.bfloat16,
}  # fmt: skip
SCALES = {64: np.float16, 68: np.float32, 77: np.float32, 70: np.float64}


class Cublas:
    """gemmEx and gemmStridedBatchedEx as cuBLAS documents them, column-major, by address."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []  # name, compute type, math mode
        self.modes: dict[int, int] = {}  # of the handles there are
        self.made = 0

    def create(self) -> int:
        self.made += 1
        self.modes[self.made] = 0
        return self.made

    def destroy(self, handle: int) -> None:
        del self.modes[handle]

    def setMathMode(self, handle: int, mode: int) -> None:
        assert self.modes[handle] != mode  # it is set where it changes
        self.modes[handle] = mode

    def run(self, name: str, handle: int, *arguments: Any) -> None:
        if arguments[0] == "fail":
            raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")
        math = self.modes[handle]
        if name == "gemmEx":
            (ta, tb, m, n, k, one, a, a_type, lda, b, b_type, ldb, zero, c, c_type, ldc,
             compute, _) = arguments  # fmt: skip
            a_step = b_step = c_step = 0
            batch = 1
        else:
            (ta, tb, m, n, k, one, a, a_type, lda, a_step, b, b_type, ldb, b_step, zero, c,
             c_type, ldc, c_step, batch, compute, _) = arguments  # fmt: skip
        self.calls.append((name, compute, math))
        scale = np.dtype(SCALES[compute])
        if c_type in (4, 5):
            scale = np.dtype(f"c{2 * scale.itemsize}")
        assert _at(one, (1,), (0,), scale)[0] == 1 and _at(zero, (1,), (0,), scale)[0] == 0
        assert lda >= (k if ta else m) and ldb >= (n if tb else k) and ldc >= m
        left = _matrices(a, (batch, m, k), ta, lda, a_step, a_type)
        right = _matrices(b, (batch, k, n), tb, ldb, b_step, b_type)
        wide = np.result_type(TYPES[c_type], np.float32)
        product = left.astype(wide) @ right.astype(wide)
        _matrices(c, (batch, m, n), 0, ldc, c_step, c_type)[...] = product.astype(TYPES[c_type])


def _at(address: int, shape: Any, steps: Any, kind: Any) -> Any:
    """The memory at an address as an array."""
    kind = np.dtype(kind)
    span = 1 + sum((extent - 1) * step for extent, step in zip(shape, steps))
    memory = (ctypes.c_char * (span * kind.itemsize)).from_address(address)
    flat = np.frombuffer(memory, kind)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in steps])


def _matrices(address: int, shape: Any, turned: int, leading: int, step: int, kind: int) -> Any:
    """Column-major matrices, or row-major ones where they are ``turned``."""
    steps = (step, leading, 1) if turned else (step, 1, leading)
    return _at(address, shape, steps, TYPES[kind])


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> Cublas:
    library = Cublas()
    names = "gemmEx", "gemmStridedBatchedEx"
    functions = {name: partial(library.run, name) for name in names}
    monkeypatch.setattr(gemm, "_library", lambda: (library, functions, RuntimeError))
    monkeypatch.setattr(gemm, "_thread", gemm._Thread())
    return library


@pytest.fixture
def settings() -> Any:
    """The settings, put back afterwards."""
    found = lucid_gpu.backends.cuda.matmul
    names = ("_level", *(n for n in found.__slots__ if n.startswith("allow")))
    before = {name: getattr(found, name) for name in names}
    yield found
    for name, value in before.items():
        setattr(found, name, value)


@pytest.fixture(autouse=True)
def _copied_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reordering, "_by", None)


class Addressed(np.ndarray):
    """An array whose address is asked for as CuPy's is."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0], device_id=0)


class Counting:
    """NumPy, counting the arrays copied."""

    copied: int = 0
    broadcast_to = staticmethod(np.broadcast_to)

    def empty(self, shape: Any, kind: Any) -> Any:
        self.copied += 1
        return np.empty(shape, kind).view(Addressed)


def product(a: Any, b: Any) -> tuple[Any, int]:
    """What `gemm` gives, and how many copies it made."""
    out = np.full(gemm.shape_of(a.shape, b.shape), 77, a.dtype)
    xp = Counting()
    kind = from_numpy_dtype(out.dtype).name
    gemm.multiply(xp, *[array.view(Addressed) for array in (a, b, out)], kind)
    return out, xp.copied


SHAPES = {
    "matrices": ((4, 5), (5, 6)),
    "same batch": ((3, 4, 5), (3, 5, 6)),
    "one matrix for all": ((3, 4, 5), (5, 6)),
    "one matrix first": ((4, 5), (3, 5, 6)),
    "two leading dimensions": ((2, 3, 4, 5), (2, 3, 5, 6)),
    "broadcast batch": ((1, 4, 5), (3, 5, 6)),
    "row and column": ((3, 1, 5), (3, 5, 1)),
    "outer": ((3, 1), (1, 4)),
    "no sum": ((3, 4, 0), (3, 0, 6)),
    "no rows": ((3, 0, 5), (3, 5, 6)),
    "no batch": ((0, 4, 5), (0, 5, 6)),
}


@pytest.mark.each_value
@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", [*TYPES.values()], ids=lambda kind: np.dtype(kind).name)
def test_products_need_no_copies(case: str, turned: str, kind: Any, cublas: Cublas) -> None:
    rng = np.random.default_rng(0)
    arrays = []
    for name, shape in zip("ab", SHAPES[case]):
        swapped = (*shape[:-2], shape[-1], shape[-2])
        numbers = rng.integers(-4, 5, swapped if name in turned else shape).astype(kind)
        arrays.append(numbers.swapaxes(-1, -2) if name in turned else numbers)
    a, b = arrays
    found, copied = product(a, b)
    wide = np.complex128 if np.dtype(kind).kind == "c" else np.float64
    np.testing.assert_array_equal(found.astype(wide), a.astype(wide) @ b.astype(wide))
    assert copied == 0
    assert len(cublas.calls) == (0 if "no " in case else 1)


WIDE = np.arange(-3 * 6 * 8, 3 * 6 * 8, dtype=np.float32).reshape(6, 6, 8)
VIEWS = {  # of six matrices of 6 x 8, and the copies a product of it and its transpose needs
    "leading columns": (WIDE[:, :, :4], 0),
    "trailing columns": (WIDE[:, :, 3:], 0),
    "every second row": (WIDE[:, ::2], 0),
    "every second matrix": (WIDE[::2], 0),
    "one matrix everywhere": (np.broadcast_to(WIDE[2], (5, 6, 8)), 0),
    "rows of a packed tensor": (WIDE.reshape(6, 3, 2, 8)[:, :, 1], 0),
    "batches apart": (WIDE.reshape(2, 3, 6, 8).transpose(0, 1, 3, 2), 0),
    "heads inside": (WIDE.reshape(6, 6, 2, 4).transpose(2, 0, 1, 3)[:, 1], 0),
    "a column as a matrix": (WIDE[:, :, 5:6], 0),
    "a strided row": (WIDE[:, 1:2, ::3], 0),
    "every second column": (WIDE[:, :, ::2], 2),
    "rows reversed": (WIDE[:, ::-1], 2),
    "matrices reversed": (WIDE[::-1], 2),
    "one row everywhere": (np.broadcast_to(WIDE[:, :1], (6, 4, 8)), 2),
    "one column everywhere": (np.broadcast_to(WIDE[:, :, :1], (6, 6, 4)), 2),
    "batches that do not merge": (WIDE.reshape(2, 3, 6, 8)[:, :2], 2),
    "broadcast inside a batch": (np.broadcast_to(WIDE[:2, None], (2, 3, 6, 8)), 2),
}


@pytest.mark.parametrize("name", VIEWS)
def test_strides_are_taken_as_they_are(name: str, cublas: Cublas) -> None:
    view, copies = VIEWS[name]
    found, copied = product(view, view.swapaxes(-1, -2))
    np.testing.assert_array_equal(found, view @ view.swapaxes(-1, -2))
    assert copied == copies


def test_a_strided_batch_times_a_matrix_is_one_product(cublas: Cublas) -> None:
    packed = WIDE.reshape(4, 9, 8)[:, :, :6]
    weight = np.arange(12, dtype=np.float32).reshape(6, 2)
    found, copied = product(packed, weight)
    np.testing.assert_array_equal(found, packed @ weight)
    assert copied == 0 and [name for name, *_ in cublas.calls] == ["gemmEx"]


def _compute_of(kind: str, cublas: Cublas, batched: bool) -> tuple[int, int]:
    a = np.ones((3, 4, 4) if batched else (4, 4), TYPES[gemm.TYPES[kind]])
    product(a, a)
    (name, compute, math) = cublas.calls.pop()
    assert name == ("gemmStridedBatchedEx" if batched else "gemmEx")
    return compute, math


@pytest.mark.parametrize("batched", [False, True])
def test_one_switch_for_every_product(batched: bool, cublas: Cublas, settings: Any) -> None:
    kinds = ("float32", "complex64", "float64", "complex128", "float16", "bfloat16")
    off = {kind: _compute_of(kind, cublas, batched)[0] for kind in kinds}
    assert off == dict(zip(kinds, (68, 68, 70, 70, 68, 68)))
    settings.allow_tf32 = True
    on = {kind: _compute_of(kind, cublas, batched)[0] for kind in kinds}
    assert on == off | {"float32": 77, "complex64": 77}


def test_16_bit_sums_can_be_kept_in_float32(cublas: Cublas, settings: Any) -> None:
    assert _compute_of("bfloat16", cublas, True) == (68, 0)
    settings.allow_bf16_reduced_precision_reduction = False
    assert _compute_of("bfloat16", cublas, True) == (68, 16)
    assert _compute_of("float16", cublas, True) == (68, 0)
    settings.allow_fp16_reduced_precision_reduction = False
    assert _compute_of("float16", cublas, True) == (68, 16)
    settings.allow_fp16_accumulation = True
    assert _compute_of("float16", cublas, True) == (64, 0)


def test_the_words_are_torchs(settings: Any) -> None:
    assert not settings.allow_tf32 and lucid_gpu.get_float32_matmul_precision() == "highest"
    lucid_gpu.set_float32_matmul_precision("high")
    assert settings.allow_tf32 and settings.fp32_precision == "tf32"
    lucid_gpu.set_float32_matmul_precision("medium")
    assert settings.allow_tf32 and lucid_gpu.get_float32_matmul_precision() == "medium"
    settings.allow_tf32 = False
    assert lucid_gpu.get_float32_matmul_precision() == "highest"
    settings.fp32_precision = "tf32"
    assert lucid_gpu.get_float32_matmul_precision() == "high"
    settings.fp32_precision = "ieee"
    assert not settings.allow_tf32


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        ("allow_tf32", 1, RuntimeError, "expects a bool, but got int"),
        ("allow_fp16_accumulation", "yes", TypeError, "expects a bool, but got str"),
        ("fp32_precision", "tf23", RuntimeError, "Unknown precision: tf23"),
        ("allow_tf23", True, AttributeError, "Unknown attribute allow_tf23"),
    ],
)
def test_what_is_no_setting_is_refused(
    name: str, value: Any, kind: Any, words: str, settings: Any
) -> None:
    with pytest.raises(kind, match=words):
        setattr(settings, name, value)
    with pytest.raises(ValueError, match="'fast' is not one of 'highest', 'high', or 'medium'"):
        lucid_gpu.set_float32_matmul_precision("fast")
    assert not settings.allow_tf32


@pytest.mark.parametrize("rows", [(4,), (2, 3), (1, 1), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("laid", ["", "gaps", "turned", "reversed"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex64])
def test_products_of_all_rows(rows: Any, laid: str, kind: Any, cublas: Cublas) -> None:
    generator = np.random.default_rng(2)
    a, b = [generator.standard_normal((*rows, n)).astype(kind) for n in (3, 5)]
    wanted = a.reshape(-1, 3).T @ b.reshape(-1, 5)
    if laid == "gaps":
        a = np.concatenate([a, a], -1)[..., :3]
    elif laid == "turned":
        a = np.ascontiguousarray(a.T).T
    elif laid == "reversed":
        a = np.ascontiguousarray(a[..., ::-1])[..., ::-1]
    xp, out = Counting(), np.full((3, 5), 77, kind).view(Addressed)
    name = from_numpy_dtype(out.dtype).name
    gemm.multiply_rows(xp, a.view(Addressed), b.view(Addressed), out, name)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    assert xp.copied == 0 or (laid in ("turned", "reversed") and xp.copied == 1)


def test_each_thread_has_a_handle_of_its_own_as_long_as_it_lives(cublas: Cublas) -> None:
    a = np.ones((2, 2), np.float32)
    product(a, a)
    product(a, a)
    assert [*cublas.modes] == [1]
    thread = threading.Thread(target=product, args=(a, a))
    thread.start()
    thread.join()
    assert [*cublas.modes] == [1] and cublas.made == 2


def test_the_math_mode_is_set_where_it_changes(cublas: Cublas, settings: Any) -> None:
    a, b = np.ones((2, 2), np.float16), np.ones((2, 2), np.float32)
    settings.allow_fp16_reduced_precision_reduction = False
    for array in (b, a, a, b):
        product(array, array)
    assert [mode for _, _, mode in cublas.calls] == [0, 16, 16, 0]


def test_a_failure_is_told(cublas: Cublas) -> None:
    array, call = np.ones((2, 2)).view(Addressed), gemm.Call("gemmEx", ("fail",), (), (), 0, (), 0)
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        gemm._run(call, array, array, array)


def test_what_is_longer_than_cublas_counts() -> None:
    """Shapes and strides alone: nobody has the memory."""
    long = 2**31
    square = (4, 4), (16, 4)
    for a, b in [
        (((long, 4), (16, 4)), square),
        (square, ((4, long), (4 * long, 4))),
        (((4, long), (4 * long, 4)), ((long, 4), (16, 4))),
    ]:
        with pytest.raises(RuntimeError, match="cuBLAS takes at most 2147483647 rows, columns"):
            gemm.plan(*a, *b, (), 4)
    plan = gemm.plan((2, long // 2, 4), (8 * long, 16, 4), *square, (2,), 4)
    assert plan is not None and (plan.m, plan.batch) == (long // 2, 2)  # not one of 2**31 rows
    with pytest.raises(RuntimeError, match="and matrices"):
        gemm.plan((long, 4, 4), (64, 16, 4), (long, 4, 4), (64, 16, 4), (long,), 4)
