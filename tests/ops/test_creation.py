"""Constructors: values, types, sharing and PyTorch's words."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import gives, modules, same_error, torch_module

MAKERS: dict[str, Any] = {
    "tensor of floats": lambda m, d: m.tensor([1.5, 2], device=d),
    "tensor of ints": lambda m, d: m.tensor([1, 2], device=d),
    "tensor of bools": lambda m, d: m.tensor([True, False], device=d),
    "tensor of bools and ints": lambda m, d: m.tensor([True, 2], device=d),
    "tensor of complex": lambda m, d: m.tensor([1, 2j], device=d),
    "tensor of a number": lambda m, d: m.tensor(3, device=d),
    "tensor nested": lambda m, d: m.tensor([[1, 2], [3, 4.5]], device=d),
    "tensor of tuples": lambda m, d: m.tensor(((1, 2), (3, 4)), device=d),
    "tensor of nothing": lambda m, d: m.tensor([], device=d),
    "tensor of empty rows": lambda m, d: m.tensor([[], []], device=d),
    "tensor of a float64 array": lambda m, d: m.tensor(np.arange(3.0), device=d),
    "tensor of an int8 array": lambda m, d: m.tensor(np.arange(3, dtype=np.int8), device=d),
    "tensor of a strided array": lambda m, d: m.tensor(np.arange(6).reshape(2, 3).T, device=d),
    "tensor of NumPy numbers": lambda m, d: m.tensor([np.float32(1), np.float32(2)], device=d),
    "tensor of 0-d tensors": lambda m, d: m.tensor([m.tensor(1.0), m.tensor(2.0)], device=d),
    "tensor with a type": lambda m, d: m.tensor([1, 2], dtype=m.float16, device=d),
    "tensor from floats to ints": lambda m, d: m.tensor([1.7, -2.7], dtype=m.int32, device=d),
    "as_tensor": lambda m, d: m.as_tensor([1.0, 2.0], device=d),
    "scalar_tensor": lambda m, d: m.scalar_tensor(2, device=d),
    "zeros": lambda m, d: m.zeros(2, 3, device=d),
    "zeros of a tuple": lambda m, d: m.zeros((2, 3), dtype=m.int64, device=d),
    "zeros of nothing": lambda m, d: m.zeros((), device=d),
    "ones": lambda m, d: m.ones([2], dtype=m.bool, device=d),
    "full": lambda m, d: m.full((2, 2), 1.5, device=d),
    "full of ints": lambda m, d: m.full((2,), 3, device=d),
    "full of bools": lambda m, d: m.full((2,), True, device=d),
    "full of complex": lambda m, d: m.full((2,), 1j, device=d),
    "full with a type": lambda m, d: m.full((2,), 3, dtype=m.float64, device=d),
    "zeros_like": lambda m, d: m.zeros_like(m.ones(2, 3, dtype=m.float64, device=d)),
    "ones_like with a type": lambda m, d: m.ones_like(m.ones(2, device=d), dtype=m.int8),
    "full_like": lambda m, d: m.full_like(m.ones(2, device=d), 7),
    "arange": lambda m, d: m.arange(5, device=d),
    "arange from to": lambda m, d: m.arange(2, 7, 2, device=d),
    "arange of floats": lambda m, d: m.arange(0, 1, 0.25, device=d),
    "arange backwards": lambda m, d: m.arange(5, 0, -2, device=d),
    "arange with a type": lambda m, d: m.arange(3, dtype=m.float32, device=d),
    "arange empty": lambda m, d: m.arange(3, 3, device=d),
    "linspace": lambda m, d: m.linspace(0, 1, 5, device=d),
    "linspace backwards": lambda m, d: m.linspace(3, -3, 4, dtype=m.float64, device=d),
    "linspace of one": lambda m, d: m.linspace(2, 9, 1, device=d),
    "linspace of none": lambda m, d: m.linspace(2, 9, 0, device=d),
    "eye": lambda m, d: m.eye(3, device=d),
    "eye oblong": lambda m, d: m.eye(2, 3, dtype=m.int64, device=d),
    "new_zeros": lambda m, d: m.ones(1, dtype=m.float64, device=d).new_zeros(2, 3),
    "new_ones": lambda m, d: m.ones(1, dtype=m.int8, device=d).new_ones((2,)),
    "new_full": lambda m, d: m.ones(1, device=d).new_full((2,), 3),
    "new_tensor": lambda m, d: m.ones(1, device=d).new_tensor([1, 2]),
    "full of a negative byte": lambda m, d: m.full((2,), -9, dtype=m.uint8, device=d),
    "scalar_tensor with options": lambda m, d: m.scalar_tensor(-5, layout=m.strided, device=d),
    "arange of NumPy's numbers": lambda m, d: m.arange(np.int64(1), np.int32(4), device=d),
    "arange of NumPy's floats": lambda m, d: m.arange(np.float32(3), device=d),
    "full of a tensor": lambda m, d: m.full((2,), m.tensor(3), device=d),
    "arange by name": lambda m, d: m.arange(end=3, device=d),
    "arange cut to ints": lambda m, d: m.arange(0.0, -8.1, -4.7, dtype=m.int64, device=d),
    "linspace cut to ints": lambda m, d: m.linspace(4.3, 0, 9, dtype=m.int64, device=d),
    "logspace cut to ints": lambda m, d: m.logspace(4.3, 2, 3, 2.0, dtype=m.uint8, device=d),
}


@pytest.mark.parametrize("name", MAKERS)
def test_constructors_agree_with_torch(name: str, device: str) -> None:
    got, expected = MAKERS[name](lucid_gpu, device), MAKERS[name](torch_module(), "cpu")
    assert got.dtype.name == str(expected.dtype).split(".")[1]
    assert tuple(got.shape) == tuple(expected.shape)
    assert got.device.type == device
    assert not got.requires_grad
    np.testing.assert_allclose(
        np.array(got.tolist()), np.array(expected.tolist()), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("count", [2.5, "3"])
def test_counts_are_whole_numbers(count: Any, device: str) -> None:
    for make in (
        lambda: lucid_gpu.eye(count, device=device),
        lambda: lucid_gpu.eye(2, count, device=device),
        lambda: lucid_gpu.linspace(0, 1, count, device=device),
    ):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer|must be int"):
            make()


@pytest.mark.parametrize("maker", ["empty", "empty_like", "new_empty"])
def test_empty_tensors_have_shape_and_type(maker: str, device: str) -> None:
    like = lucid_gpu.ones(2, 3, dtype=lucid_gpu.float64, device=device)
    made = {
        "empty": lambda: lucid_gpu.empty(2, 3, dtype=lucid_gpu.float64, device=device),
        "empty_like": lambda: lucid_gpu.empty_like(like),
        "new_empty": lambda: like.new_empty(2, 3),
    }[maker]()
    assert (made.shape, made.dtype, made.device) == (like.shape, like.dtype, like.device)


def test_constructors_make_leaves_that_may_require_grad(device: str) -> None:
    for make in (
        lambda **o: lucid_gpu.tensor([1.0], **o),
        lambda **o: lucid_gpu.zeros(1, **o),
        lambda **o: lucid_gpu.full((1,), 2.0, **o),
        lambda **o: lucid_gpu.ones_like(lucid_gpu.zeros(1), **o),
        lambda **o: lucid_gpu.arange(3.0, **o),
        lambda **o: lucid_gpu.eye(2, **o),
    ):
        t = make(requires_grad=True, device=device)
        assert t.requires_grad and t.is_leaf and t.grad_fn is None


def test_tensor_copies_its_data() -> None:
    array = np.zeros(3, np.float32)
    t = lucid_gpu.tensor(array)
    array[...] = 1
    assert t.tolist() == [0.0] * 3
    again = lucid_gpu.tensor(t)
    t += 5
    assert again.tolist() == [0.0] * 3


def test_from_numpy_shares_memory_both_ways() -> None:
    array = np.zeros((2, 3), np.float32)
    t = lucid_gpu.from_numpy(array)
    array[0, 1] = 4
    assert t[0, 1].item() == 4
    t += 1
    assert array.tolist() == [[1, 5, 1], [1, 1, 1]]
    t[1] = 9
    assert array[1].tolist() == [9, 9, 9]
    assert t.numpy().__array_interface__["data"] == array.__array_interface__["data"]


def test_from_numpy_keeps_strides() -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3).T
    t = lucid_gpu.from_numpy(array)
    assert t.tolist() == array.tolist()
    assert not t.is_contiguous()


TAKING_AN_ARRAY = {
    "from_numpy": lambda m, a: m.from_numpy(a),
    "as_tensor": lambda m, a: m.as_tensor(a),
    "as_tensor in a type": lambda m, a: m.as_tensor(a, dtype=m.float64),
    "tensor": lambda m, a: m.tensor(a),
    "asarray": lambda m, a: m.asarray(a),
    "new_tensor": lambda m, a: m.ones(1).new_tensor(a),
    "Tensor": lambda m, a: m.Tensor(a),
    "FloatTensor": lambda m, a: m.FloatTensor(a),
    "index": lambda m, a: m.ones(3)[a],
}


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "i8", "c8"])
@pytest.mark.parametrize("name", TAKING_AN_ARRAY)
def test_arrays_of_the_other_byte_order_are_refused(name: str, kind: str) -> None:
    array = np.arange(3).astype(np.dtype(kind).newbyteorder())
    same_error(lambda m: TAKING_AN_ARRAY[name](m, array), "byte order different from the native")


def test_arithmetic_and_numpys_functions_take_both_byte_orders() -> None:
    array = np.arange(3.0).astype(np.dtype("f8").newbyteorder())
    x = lucid_gpu.ones(3, dtype=lucid_gpu.float64)
    for result in (x * array, array * x, np.multiply(x, array), np.where(x > 0, array, 0.0)):
        assert result.tolist() == [0.0, 1.0, 2.0]
    gradient = lucid_gpu.numpy.grad(lambda a: np.sum(a * array))(array)
    assert gradient.tolist() == [0.0, 1.0, 2.0]


def test_as_tensor_copies_only_where_it_must() -> None:
    array = np.zeros(2, np.float32)
    shared = lucid_gpu.as_tensor(array)
    copied = lucid_gpu.as_tensor(array, dtype=lucid_gpu.float64)
    array[...] = 1
    assert (shared.tolist(), copied.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    t = lucid_gpu.ones(2)
    assert lucid_gpu.as_tensor(t) is t


MISUSE: dict[str, tuple[Any, str]] = {
    "ragged rows": (
        lambda m: m.tensor([[1, 2], [3]]),
        "expected sequence of length 2 at dim 1 (got 1)",
    ),
    "ragged planes": (
        lambda m: m.tensor([[[1], [2]], [[1], [2, 3]]]),
        "expected sequence of length 1 at dim 2 (got 2)",
    ),
    "a number among rows": (lambda m: m.tensor([[1], 2]), "not a sequence"),
    "a row among numbers": (lambda m: m.tensor([1, [2]]), "expected a number at dim 1"),
    "a string": (lambda m: m.tensor("abc"), ""),
    "negative extent": (lambda m: m.zeros(2, -1), "negative dimension -1: [2, -1]"),
    "negative extent of full": (lambda m: m.full((-2,), 1.0), "negative dimension -2"),
    "complex numbers as floats": (lambda m: m.tensor([1j], dtype=m.float32), "must be real number"),
    "a complex number as an int": (lambda m: m.tensor(1j, dtype=m.int64), "complex"),
    "a device's index as text": (
        lambda m: m.device("cpu", "a"),
        "'index' (position 2) must be int",
    ),
    "a negative device": (lambda m: m.device("cuda", -2), "Device index must not be negative"),
    "step of zero": (lambda m: m.arange(1, 3, 0), "step must be nonzero"),
    "wrong step": (lambda m: m.arange(1, 3, -1), "inconsistent with step sign"),
    "negative steps": (lambda m: m.linspace(0, 1, -1), "number of steps must be non-negative"),
    "from a list": (lambda m: m.from_numpy([1, 2]), "expected np.ndarray (got list)"),
    "ints that want gradients": (
        lambda m: m.ones(2, dtype=m.int64, requires_grad=True),
        "floating point and complex dtype can require gradients",
    ),
    "an unknown device": (lambda m: m.zeros(1, device="gpu"), "device"),
    "a shape of floats": (lambda m: m.zeros(1.5), ""),
    "a step cut to zero": (lambda m: m.arange(0, 1, 0.3, dtype=m.int64), "step must be nonzero"),
    "no end": (lambda m: m.arange(float("nan")), "unsupported range"),
    "arange of bools": (lambda m: m.arange(2, dtype=m.bool), "not implemented"),
    "too much for a byte": (lambda m: m.full((2,), 300, dtype=m.uint8), "without overflow"),
    "too much for a list of bytes": (lambda m: m.tensor([1, 300], dtype=m.uint8), "without overf"),
    "too little for bytes": (lambda m: m.tensor([-300], dtype=m.int8), "without overflow"),
    "too much for int32": (lambda m: m.tensor([1e20], dtype=m.int32), "without overflow"),
    "NaN as a number": (lambda m: m.tensor([float("nan")], dtype=m.int64), "without overflow"),
    "a string to fill with": (lambda m: m.ones(2).fill_("a"), "must be Number, not str"),
    "nothing to fill with": (lambda m: m.full((2,), None), "NoneType"),
    "a string as a constant": (lambda m: m.nn.init.constant_(m.ones(2), "a"), "must be Number, no"),
    "too much to fill with": (lambda m: m.ones(2, dtype=m.int8).fill_(300), "without overflow"),
    "no integer": (lambda m: m.full((2,), float("nan"), dtype=m.int32), "without overflow"),
    "no real number": (lambda m: m.full((2,), 1j, dtype=m.float32), "without overflow"),
    "a gap in a list": (lambda m: m.tensor([1, None]), "Could not infer dtype of NoneType"),
    "a dictionary": (lambda m: m.tensor({1: 2}), "Could not infer dtype of dict"),
    "a generator": (lambda m: m.tensor(n for n in range(3)), "Could not infer dtype of gen"),
    "too large a number": (lambda m: m.tensor([1, 2**70]), "Overflow when unpacking long long"),
    "a text among numbers": (lambda m: m.tensor([1, "a"]), ""),
    "zeros of no size": (lambda m: m.zeros(), 'missing 1 required positional arguments: "size"'),
    "empty of no size": (lambda m: m.empty(dtype=m.int64), "missing 1 required positional"),
    "new_zeros of no size": (lambda m: m.ones(2).new_zeros(), "missing 1 required positional"),
    "a range of too many steps": (lambda m: m.arange(1e-38, 3e38), "possible overflow"),
    "a truth as a size": (lambda m: m.zeros(True), "must be tuple of ints, not bool"),
    "a list of truths as a size": (lambda m: m.ones([True, 2]), "must be tuple of ints, not bool"),
    "several numbers in a tensor": (lambda m: m.empty(m.tensor([2, 3])), "not Tensor"),
    "a random size in a tensor": (lambda m: m.rand(m.tensor([2, 3])), "not Tensor"),
    "a set of sizes": (lambda m: m.full({2}, 1.0), "must be tuple of ints, not set"),
    "a size after a shape": (lambda m: m.randn((2, 3), 1), "invalid combination of arguments"),
    "more bytes than 64 bits count": (
        lambda m: m.empty((2, 4, 2**29, 2**29), dtype=m.float64),
        "Storage size calculation overflowed with sizes=[2, 4, 536870912, 536870912]",
    ),
    "random numbers beyond 64 bits": (lambda m: m.rand(2**40, 2**40), "Storage size calculation"),
    "steps that 64 bits do not count": (
        lambda m: m.empty(0, 4, 2**61),
        "Stride calculation overflowed",
    ),
    "a sign of quantized numbers": (lambda m: m.qint8.is_signed, "not supported for quantized"),
    "a negative identity": (lambda m: m.eye(2, -3), "m must be greater or equal to 0, got -3"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


OUTS: dict[str, Any] = {
    "arange": lambda m, out: m.arange(5, out=out),
    "linspace": lambda m, out: m.linspace(0, 1, 5, out=out),
    "logspace": lambda m, out: m.logspace(0, 1, 5, out=out),
    "zeros": lambda m, out: m.zeros(5, out=out),
    "full": lambda m, out: m.full((5,), 2.0, out=out),
    "eye": lambda m, out: m.eye(5, out=out),
    "rand": lambda m, out: m.rand(5, out=out),
    "randint": lambda m, out: m.randint(3, (5,), out=out),
    "add": lambda m, out: m.add(m.ones(5), 1, out=out),
}


@pytest.mark.parametrize("shape", [(3,), (0,), (5,), (5, 1), (1, 7)])
@pytest.mark.parametrize("name", OUTS)
def test_which_outs_are_resized_with_a_warning(name: str, shape: tuple[int, ...]) -> None:
    def resized(m: Any, where: str) -> Any:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            out = OUTS[name](m, m.empty(shape))
        return list(out.shape), [str(w.message).split("(Trig")[0].strip() for w in heard]

    (ours, *theirs) = [resized(m, where) for m, where in modules()]
    assert all(ours == other for other in theirs)


def test_which_tensors_can_require_gradients_as_each_door_says() -> None:
    doors = (
        lambda m: m.zeros(2, dtype=m.int64, requires_grad=True),
        lambda m: m.tensor([1]).new_ones(2, requires_grad=True),
        lambda m: m.tensor([1]).requires_grad_(),
        lambda m: setattr(m.tensor([1]), "requires_grad", True),
    )
    for door in doors:
        said = []
        for m, _ in modules():
            with pytest.raises(RuntimeError) as got:
                door(m)
            said.append(str(got.value).split(", got")[0])
        assert len(set(said)) == 1


def test_an_allocation_that_cannot_be_met_says_how_much_was_asked(device: str) -> None:
    if device == "cpu":
        kind, words = MemoryError, r"cannot allocate \d+.*GiB.*shape"
    else:
        kind, words = lucid_gpu.cuda.OutOfMemoryError, r"allocate 128.00 TiB for .* shape"
    with pytest.raises(kind, match=words):
        lucid_gpu.empty(1 << 45, device=device)
    assert lucid_gpu.ones(2, device=device).tolist() == [1.0, 1.0]


def test_numbers_of_numpy_fill() -> None:
    def filled(m: Any, where: str) -> Any:
        numbers = (np.float32(3), np.int64(3), np.bool_(True))
        made = [m.full((1,), n) for n in numbers[:2]] + [m.ones(1).fill_(n) for n in numbers]
        return [(t.tolist(), str(t.dtype).split(".")[1]) for t in made]

    gives(
        [([3.0], "float32"), ([3], "int64")] + [([v], "float32") for v in (3.0, 3.0, 1.0)],
        filled,
    )


LISTS: dict[str, Any] = {
    "float64": lambda m: [np.float64(1), 2.0],
    "float32 and numbers": lambda m: [[np.float32(1), 2.0], [1, 1j]],
    "float16": lambda m: [np.float16(1)],
    "int8": lambda m: (np.int8(1), np.int8(2)),
    "int8 and a number": lambda m: [np.int8(1), 2],
    "uint8": lambda m: [[np.uint8(1)], [np.uint8(200)]],
    "truths": lambda m: [np.bool_(1), False],
    "complex64": lambda m: [np.complex64(1j), 1],
    "arrays": lambda m: [np.ones(2), np.zeros(2)],
    "arrays of int16": lambda m: [np.ones(2, np.int16)],
    "tensors": lambda m: [m.tensor(1.0, dtype=m.float64), 2.0],
    "tensors of int8": lambda m: [m.tensor(1, dtype=m.int8)],
    "nothing": lambda m: [[], []],
    "numbers": lambda m: [[1.0], [2]],
    "tensors of one element": lambda m: [m.ones(1), m.ones(1, 1, dtype=m.float64)],
    "tensors of one element, deeper": lambda m: ((m.ones(1, dtype=m.int64), 2), (m.ones(()), 3)),
    "whole numbers no type holds, and a float": lambda m: [2**70, 1.5],
}


@pytest.mark.parametrize("dtype", ["bool", "float32", "float64", "complex64"])
@pytest.mark.parametrize("number", [2**64, -(2**70), 2**63])
def test_whole_numbers_that_no_type_holds_are_converted(number: int, dtype: str) -> None:
    expected = np.dtype(dtype).type(float(number)).item()  # these are powers of two: exact
    for m, _ in modules():
        made = [m.tensor(x, dtype=getattr(m, dtype)).tolist() for x in (number, [number, 0])]
        assert made == [expected, [expected, 0]]


def _in_itself() -> list[Any]:
    data: list[Any] = [0]
    data.append(data)
    return data


NO_DATA: dict[str, tuple[Any, str]] = {
    "tensors of several": (lambda m: [m.ones(2), m.ones(2)], "only one element tensors"),
    "whole tensors of several": (lambda m: [m.arange(2)], "only integer tensors of a single"),
    "text": (lambda m: [0, "torch"], "new(): invalid data type 'str'"),
    "too large": (lambda m: [2**63], "Overflow when unpacking long long"),
    "itself": (lambda m: _in_itself(), "self-referential lists are incompatible"),
    "arrays of two lengths": (
        lambda m: [np.zeros((3, 3)), np.zeros((3, 0))],
        "expected sequence of length 3 at dim 2 (got 0)",
    ),
    "an array and a number": (lambda m: [[np.zeros(3), 1.0]], "not a sequence"),
    "far too large": (lambda m: 2**64, "Overflow when unpacking long long"),
}


@pytest.mark.parametrize("name", NO_DATA)
def test_what_is_no_data_is_refused(name: str) -> None:
    data, words = NO_DATA[name]
    same_error(lambda m: m.tensor(data(m)), words)


@pytest.mark.parametrize("name", LISTS)
def test_lists_keep_the_types_that_numpy_gave(name: str) -> None:
    found = []
    for module, _ in modules():
        x = module.tensor(LISTS[name](module))
        found.append((str(x.dtype).rpartition(".")[2], x.tolist()))
    assert all(f == found[0] for f in found)
