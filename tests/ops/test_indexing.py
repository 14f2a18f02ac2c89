"""Indexing: reading, gradients, assignment and errors as in torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from tests.oracle import agree, gives, same_error, torch_module

RNG = np.random.default_rng(6)
CUBE = RNG.standard_normal((4, 3, 5))
MASK = RNG.random((4, 3, 5)) > 0.5


def long(m: Any, *values: Any) -> Any:
    return m.tensor(list(values), dtype=m.int64)


INDICES: dict[str, Any] = {
    "int": lambda m: 2,
    "negative": lambda m: -1,
    "ints": lambda m: (1, 2, 3),
    "slice": lambda m: slice(1, 3),
    "step": lambda m: slice(None, None, 2),
    "slices": lambda m: (slice(1, None), slice(None, 2), slice(1, 4, 2)),
    "ellipsis": lambda m: (..., 1),
    "ellipsis between": lambda m: (1, ..., slice(2)),
    "None": lambda m: None,
    "Nones": lambda m: (slice(None), None, 1, None),
    "empty slice": lambda m: slice(2, 2),
    "empty tuple": lambda m: (),
    "beyond the end": lambda m: slice(2, 100),
    "list": lambda m: [0, 2, 2],
    "list in a tuple": lambda m: ([0, 2], slice(1, 3)),
    "tensor": lambda m: long(m, 0, 3, 3, -1),
    "tensor behind": lambda m: (slice(None), long(m, 0, 2, 0)),
    "tensors": lambda m: (long(m, 0, 1), long(m, 1, 2)),
    "tensors that broadcast": lambda m: (long(m, 0, 1).reshape(2, 1), long(m, 0, 1, 2)),
    "tensors apart": lambda m: (long(m, 0, 1), slice(None), long(m, 1, 2)),
    "tensor and int": lambda m: (1, long(m, 0, 1)),
    "0-d tensor": lambda m: m.tensor(2),
    "matrix": lambda m: long(m, 0, 1, 2, 3).reshape(2, 2),
    "no positions": lambda m: long(m),
    "mask": lambda m: m.tensor(MASK),
    "mask of rows": lambda m: m.tensor([True, False, True, False]),
    "mask behind": lambda m: (slice(None), m.tensor([True, False, True])),
    "mask and tensor": lambda m: (m.tensor([True, False, True, False]), long(m, 0, 1)),
    "mask of a list": lambda m: [True, False, True, True],
    "True": lambda m: True,
    "False": lambda m: False,
    "array": lambda m: np.array([1, 0]),
    "uint8 mask": lambda m: m.tensor([1, 0, 0, 1], dtype=m.uint8),
    "int apart": lambda m: (0, slice(None), long(m, 0, 2)),
    "int behind": lambda m: (long(m, 0, 2), slice(None), 1),
    "int, None, tensor": lambda m: (0, None, long(m, 0, 2)),
    "0-d tensor apart": lambda m: (m.tensor(0), slice(None), m.tensor([True, False] * 2 + [True])),
    "int apart from True": lambda m: (0, None, True),
    "Nones behind a tensor": lambda m: (long(m, 0, 2), None, None),
    "mask of two": lambda m: m.tensor(MASK[:, :, 0]),
    "mask of two behind": lambda m: (..., m.tensor(MASK[0])),
    "list of tensors": lambda m: [long(m, 0, 1), long(m, 1, 2)],
    "list of lists": lambda m: [[0, 1], [1, 2]],
    "list with a slice": lambda m: [0, slice(1, None)],
    "two ellipses": lambda m: (1, ..., ...),
    "slice of tensors": lambda m: slice(m.tensor(1), m.tensor(3)),
    "range": lambda m: range(1, 3),
    "NumPy mask": lambda m: MASK,
    "NumPy int": lambda m: np.int64(2),
    "int32 tensor": lambda m: m.tensor([1, 0], dtype=m.int32),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8"),
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence"),
]


def moved(index: Any, device: str) -> Any:
    """An index whose tensors are ours, on the device under test."""
    if isinstance(index, (tuple, list)):
        return type(index)(moved(i, device) for i in index)
    return index.to(device) if isinstance(index, lucid_gpu.Tensor) else index


def index_for(name: str, m: Any, device: str) -> Any:
    index = INDICES[name](m)
    return moved(index, device) if m is lucid_gpu else index


@pytest.mark.parametrize("name", INDICES)
def test_reading_and_its_gradients_agree_with_torch(name: str, device: str) -> None:
    agree(lambda m, t: t[index_for(name, m, device)] * 1, CUBE, device=device)


@pytest.mark.parametrize("name", [n for n in INDICES if n != "uint8 mask"])
def test_assigning_numbers_and_tensors_agrees_with_torch(name: str, device: str) -> None:
    def assign(m: Any, t: Any, v: Any) -> Any:
        a, b = t * 1, t * 1
        a[index_for(name, m, device)] = 7
        index = index_for(name, m, device)
        b[index] = v if b[index].numel() else 3
        return a, b

    agree(assign, CUBE, np.array(2.5), device=device)


@pytest.mark.parametrize("name", [n for n in INDICES if n != "uint8 mask"])
def test_assigning_without_recording_changes_the_memory(name: str, device: str) -> None:
    torch = torch_module()
    results = []
    for m, where in ((lucid_gpu, device), (torch, "cpu")):
        t = m.tensor(CUBE).to(where)
        view = t[1:]
        t[index_for(name, m, device)] = -1.5
        results.append((t.tolist(), view.tolist()))
    assert results[0] == results[1]


def test_assigned_values_broadcast(device: str) -> None:
    def assign(m: Any, t: Any, row: Any) -> Any:
        a = t * 1
        a[1:3, :, 2:] = row
        return a

    agree(assign, CUBE, RNG.standard_normal((3, 1)), device=device)
    agree(assign, CUBE, RNG.standard_normal((1, 2, 1, 3)), device=device)


# of the assigned value, where (2, 1, 3) elements are selected
ADMITTED = [(), (1,), (1, 1, 1, 1), (3,), (1, 3), (2, 1, 3), (1, 1, 2, 1, 3), (2, 1, 1), (1, 1, 3)]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("shape", ADMITTED)
def test_values_of_every_shape_that_torch_admits(
    shape: tuple[int, ...], recorded: bool, device: str
) -> None:
    def assign(m: Any, t: Any, v: Any) -> Any:
        results = []
        for index in (
            (1, slice(2), None, slice(2, None)),
            (long(m, 1, 3), None, 1, slice(2, None)),
        ):
            a = t * 1
            a[moved(index, device)] = v
            results.append(a)
        return results

    arrays = CUBE, np.asarray(RNG.standard_normal(shape))
    if not recorded:
        arrays = tuple(np.rint(a).astype(np.int64) for a in arrays)
    agree(assign, *arrays, device=device, order=1)


# what stands in an index, for a dimension of extent n: (a function of module and n, consumes one)
PIECES: dict[str, tuple[Any, bool]] = {
    "int": (lambda m, n: n - 1, True),
    "slice": (lambda m, n: slice(1, None), True),
    "None": (lambda m, n: None, False),
    "...": (lambda m, n: ..., False),
    "tensor": (lambda m, n: long(m, 0, n - 1), True),
    "column": (lambda m, n: long(m, -1, 0).reshape(2, 1), True),
    "mask": (lambda m, n: m.tensor([i in (0, n - 1) for i in range(n)]), True),
    "0-d": (lambda m, n: m.tensor(1), True),
    "True": (lambda m, n: True, False),
}


def combination(rng: Any) -> list[str]:
    names = list(rng.choice(list(PIECES), size=rng.integers(2, 5)))
    return names if names.count("...") < 2 and sum(PIECES[n][1] for n in names) < 4 else ["int"]


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_combinations_agree_with_torch(first: int, device: str) -> None:
    for seed in range(first, first + 30):
        names = combination(np.random.default_rng(seed))

        def both(m: Any, t: Any, v: Any, names: Any = names) -> Any:
            taken = sum(PIECES[n][1] for n in names)
            extents = iter(CUBE.shape) if "..." not in names else iter(())
            if "..." in names:
                after = sum(PIECES[n][1] for n in names[names.index("...") :])
                extents = iter((*CUBE.shape[: taken - after], *CUBE.shape[3 - after :]))
            index = tuple(PIECES[n][0](m, next(extents) if PIECES[n][1] else 0) for n in names)
            a = t * 1
            a[moved(index, device)] = v
            return t[moved(index, device)] * 1, a

        agree(both, CUBE, np.array([2.5]), device=device, order=1)


def test_one_element_is_assigned_to_a_position(device: str) -> None:
    x = lucid_gpu.zeros(3, device=device)
    x[0] = lucid_gpu.ones(1, device=device)
    x[1:2] = lucid_gpu.full((1, 1, 1), 2.0, device=device)
    x[lucid_gpu.tensor([False, False, True], device=device)] = lucid_gpu.full(
        (1, 1), 3.0, device=device
    )
    assert x.tolist() == [1, 2, 3]


def test_basic_indices_give_views(device: str) -> None:
    t = lucid_gpu.zeros(3, 4, device=device)
    row, block = t[1], t[1:, ::2]
    row += 1
    block[:] = 5
    assert t.tolist() == [[0, 0, 0, 0], [5, 1, 5, 1], [5, 0, 5, 0]]
    assert row.tolist() == [5, 1, 5, 1]
    picked = t[[0, 1]]
    picked += 9
    assert t[0].tolist() == [0, 0, 0, 0]


def test_iteration_gives_rows(device: str) -> None:
    t = lucid_gpu.tensor(CUBE, device=device)
    assert [row.tolist() for row in t] == CUBE.tolist()
    a, b, c, d = t
    assert d.tolist() == CUBE[3].tolist()


FUNCTIONS: dict[str, Any] = {
    "masked_fill": lambda m, t: t.masked_fill(t > 0, -3.0),
    "where": lambda m, t: m.where(t > 0, t, t * 2),
    "where with a number": lambda m, t: m.where(t > 0, t, 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_torch(name: str, device: str) -> None:
    agree(FUNCTIONS[name], CUBE, device=device)


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_repeated_positions_accumulate_in_float32(d: str, device: str) -> None:
    x = lucid_gpu.zeros(3, dtype=getattr(lucid_gpu, d), device=device, requires_grad=True)
    index = lucid_gpu.zeros(4096, dtype=lucid_gpu.int64, device=device)
    x[index].sum().backward()
    assert x.grad.tolist() == [4096.0, 0.0, 0.0]


MISUSE: dict[str, tuple[Any, str]] = {
    "out of range": (
        lambda m: m.ones(3)[3],
        "index 3 is out of bounds for dimension 0 with size 3",
    ),
    "out of range below": (lambda m: m.ones(3, 2)[0, -3], "out of bounds"),
    "tensor out of range": (
        lambda m: m.ones(3)[m.tensor([0, 5])],
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    "too many": (lambda m: m.ones(3)[0, 0], "too many indices for tensor of dimension 1"),
    "a float": (lambda m: m.ones(3)[1.5], "only integers, slices"),
    "a float tensor": (lambda m: m.ones(3)[m.ones(1)], "tensors used as indices must be long"),
    "a wrong mask": (
        lambda m: m.ones(3)[m.tensor([True, False])],
        "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [3]",
    ),
    "no step": (lambda m: m.ones(3)[::0], ""),
    "assigning out of range": (lambda m: m.ones(3).__setitem__(4, 0), "out of bounds"),
    "assigning a misfit": (
        lambda m: m.ones(3).__setitem__(m.tensor([0, 1]), m.ones(3)),
        "shape mismatch",
    ),
    "assigning to a leaf": (
        lambda m: m.ones(3, requires_grad=True).__setitem__(0, 1),
        "a leaf Variable that requires grad",
    ),
    "index tensors that do not broadcast": (
        lambda m: m.ones(3, 3)[m.tensor([0, 1]), m.tensor([0, 1, 2])],
        "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
    ),
    "a slice of floats": (lambda m: m.ones(3)[1.0:2], "slice indices must be integers"),
    "too large a value": (
        lambda m: m.ones(3).__setitem__(0, m.ones(2)),
        "",
    ),
    "a dict": (lambda m: m.ones(3)[{}], "only integers, slices"),
    "index of a number": (lambda m: m.tensor(1.0)[0], ""),
    "iterating a number": (lambda m: list(m.tensor(1.0)), "iteration over a 0-d tensor"),
    "len of a number": (lambda m: len(m.tensor(1.0)), "len() of a 0-d tensor"),
    **{
        f"scatter_reduce beyond: {kind}": (
            lambda m, kind=kind: m.ones(3).scatter_reduce(0, m.tensor([-1]), m.ones(1), kind),
            "index -1 is out of bounds for dimension 0 with size 3",
        )
        for kind in ("sum", "mean", "prod", "amax", "amin")
    },
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_a_failed_assignment_changes_nothing(device: str) -> None:
    t = lucid_gpu.zeros(3, 2, device=device)
    for index, value in ((5, 1.0), ((0, 7), 1.0), (slice(2), lucid_gpu.ones(3, device=device))):
        with pytest.raises((IndexError, RuntimeError)):
            t[index] = value
    with pytest.raises(IndexError):
        t[lucid_gpu.tensor([0, 9], device=device)] = 1.0
    assert t.tolist() == [[0.0, 0.0]] * 3
    assert t._version == 0


def test_take_put_and_index_put(device: str) -> None:
    x = lucid_gpu.arange(6.0, device=device).reshape(2, 3)
    index = lucid_gpu.tensor([[5, 0], [-1, 2]], device=device)
    assert x.take(index).tolist() == [[5, 0], [5, 2]]
    rows = lucid_gpu.tensor([1, 1], device=device)
    added = x.index_put((rows,), lucid_gpu.ones(3, device=device), accumulate=True)
    assert added.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert x.index_put((None, rows), lucid_gpu.tensor(9.0, device=device)).tolist() == [
        [0, 9, 2],
        [3, 9, 5],
    ]
    same = x.index_put_((rows, rows), lucid_gpu.tensor([0.5, 0.25], device=device), accumulate=True)
    assert same is x
    assert x.tolist() == [[0, 1, 2], [3, 4.75, 5]]
    source = lucid_gpu.tensor([10.0, 20.0, 30.0], device=device)
    x.put_(lucid_gpu.tensor([0, 0, 5], device=device), source, accumulate=True)
    assert x.tolist() == [[30, 1, 2], [3, 4.75, 35]]
    with pytest.raises(IndexError, match="out of"):
        x.take(lucid_gpu.tensor([6], device=device)).tolist()
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x.index_put((rows,), lucid_gpu.ones(2, device=device), accumulate=True)


@pytest.mark.parametrize("name", ["index_put", "index_put_"])
def test_index_put_needs_an_index(name: str) -> None:
    same_error(lambda m: getattr(m.zeros(2), name)((), m.tensor(1.0)), "at least one tensor")


def test_what_numbers_select_is_known_without_reading_them(monkeypatch):
    """On a GPU reading them would wait for it."""
    monkeypatch.setattr(type(backend(CPU)), "to_numpy", lambda *_: pytest.fail("numbers were read"))
    x = lucid_gpu.zeros(4, 3, requires_grad=True)
    index, values = lucid_gpu.tensor([[1, 2], [0, 3]]), lucid_gpu.ones(2, 2, 3, requires_grad=True)
    y = x.index_put((index,), values)
    y.sum().backward()
    assert x.grad.array.sum() == 0 and values.grad.array.sum() == 12


@pytest.mark.parametrize(
    "index",
    [
        np.s_[::-1],
        np.s_[1::-1, ::-2],
        np.s_[:1:-2],
        np.s_[..., ::-3],
        np.s_[0, None, ::-1],
        np.s_[::-1, [2, 0]],
        np.s_[3:1:-1],
        np.s_[1:3:-1],
        np.s_[5::-2, 1],
    ],
    ids=str,
)
def test_backwards_as_in_numpy(index, device):
    values = np.arange(20.0).reshape(5, 4)
    t = lucid_gpu.tensor(values, device=device, requires_grad=True)
    found = t[index]
    np.testing.assert_array_equal(found.detach().cpu().numpy(), values[index])
    wanted = np.zeros((5, 4))
    wanted[index] = values[index]
    (found * found.detach()).sum().backward()
    np.testing.assert_array_equal(t.grad.cpu().numpy(), wanted)
    _assigned_backwards(index, values, device)


def _assigned_backwards(index, values, device):
    wanted, new = values.copy(), np.cos(np.arange(values[index].size)).reshape(values[index].shape)
    wanted[index] = new
    put = lucid_gpu.tensor(new, device=device, requires_grad=True)
    y = lucid_gpu.tensor(values, device=device)
    y[index] = put
    np.testing.assert_array_equal(y.detach().cpu().numpy(), wanted)
    (y * lucid_gpu.tensor(values, device=device)).sum().backward()
    np.testing.assert_array_equal(put.grad.cpu().numpy(), values[index])
    y = lucid_gpu.tensor(values, device=device)
    y[index] = 7
    wanted[index] = 7
    np.testing.assert_array_equal(y.cpu().numpy(), wanted)


@pytest.mark.parametrize("name", ["take", "put", "take_along_dim"])
def test_indices_of_another_type_than_int64_are_refused(name):
    x, index = lucid_gpu.ones(3), lucid_gpu.tensor([0], dtype=lucid_gpu.int32)
    rest = {"take": (), "put": (lucid_gpu.ones(1),), "take_along_dim": (0,)}[name]
    with pytest.raises(RuntimeError, match="Int: ind"):
        getattr(x, name)(index, *rest) if name != "put" else x.put_(index, *rest)
    assert x.tolist() == [1.0] * 3 and x._version == 0


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_into_an_expanded_tensor_writes_what_it_shows(accumulate, device):
    torch = torch_module()
    found = []
    for m, where in ((lucid_gpu, device), (torch, "cpu")):
        base = m.zeros(1, 2, device=where)
        x = base.expand(3, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that it will be refused
            index = m.tensor([0, 1], device=where)
            same = x.index_put_((index,), m.tensor([5.0], device=where), accumulate=accumulate)
        assert same is x and base._version == 1
        found.append((base.tolist(), x.tolist()))
    assert found[0] == found[1]
    w = lucid_gpu.zeros(1, 2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="more than one element"):
        index = lucid_gpu.tensor([0], device=device)
        (w * 1).expand(3, 2).index_put_((index,), lucid_gpu.ones(1, device=device))


def test_a_number_of_uint8_is_a_mask():
    def scenario(m, device):
        x = m.arange(3.0)
        return x[m.tensor(2, dtype=m.uint8)], x[m.tensor(0, dtype=m.uint8)].shape[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gives(([[0, 1, 2]], 0), scenario)


@pytest.mark.parametrize(
    "write",
    [
        lambda m, x: x.__setitem__((slice(None), [1]), m.ones(2, 1, dtype=m.int64)),
        lambda m, x: x.__setitem__([0], m.tensor(1.0, dtype=m.float64)),
        lambda m, x: x.__setitem__(x == 0, m.ones(6, dtype=m.float64)),
        lambda m, x: x.index_copy_(0, m.tensor([1], dtype=m.int32), m.ones(1, 3)),
    ],
)
def test_writes_of_another_type_are_refused_and_leave_the_tensor(write):
    same_error(lambda m: write(m, m.zeros(2, 3)))
    x = lucid_gpu.zeros(2, 3)
    with pytest.raises(RuntimeError):
        write(lucid_gpu, x)
    assert not x.any()


def test_a_number_of_another_type_goes_where_a_mask_says():
    def scenario(m, device):
        x = m.zeros(2)
        x[x == 0] = m.tensor(1)
        x[1] = m.tensor(2, dtype=m.float64)
        return x

    gives([1, 2], scenario)


@pytest.mark.parametrize(
    ("dtype", "value", "of"),
    [
        ("float32", 1 + 2j, "complex64"),
        ("int64", 1 + 2j, "complex64"),
        ("float32", 1e300, "float64"),
        ("float16", 1e300, "float64"),
        ("uint8", 300, "int64"),
        ("int64", float("nan"), "float32"),
    ],
)
@pytest.mark.parametrize("how", ["setitem", "masked_fill_", "masked_fill", "index_fill_"])
def test_a_tensor_filled_in_that_the_type_does_not_hold(
    how: str, dtype: str, value: Any, of: str
) -> None:
    for m in (lucid_gpu, torch_module()):
        x = m.zeros(2, dtype=getattr(m, dtype))
        mask = m.tensor([True, False])
        number = m.tensor(value, dtype=getattr(m, of))
        with pytest.raises(RuntimeError, match=r"without overflow|complex Scalar"):
            if how == "setitem":
                x[mask] = number
            elif how == "index_fill_":
                x.index_fill_(0, long(m, 0), number)
            else:
                getattr(x, how)(mask, number)


def test_a_complex_number_without_imaginary_part_is_filled_into_real_numbers() -> None:
    for m in (lucid_gpu, torch_module()):
        x = m.zeros(2)
        x[m.tensor([True, False])] = m.tensor(3 + 0j)
        assert x.tolist() == [3, 0]
