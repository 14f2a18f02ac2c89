"""Packed and padded sequences are laid out as PyTorch's."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.nn.utils import rnn
from tests.oracle import agree, gives, plain, same_error

normal = np.random.default_rng(0).standard_normal


def parts(packed):
    """A packed sequence as lists."""
    return plain(list(packed))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("lengths", "ordered"), [([3, 2, 2], True), ([1, 3, 2], False), ([2, 2, 1], True)]
)
def test_pack_and_pad(batch_first, lengths, ordered, device):
    def run(m, x):
        r = m.nn.utils.rnn
        packed = r.pack_padded_sequence(x, m.tensor(lengths), batch_first, ordered)
        indices = [t for t in packed[1:] if t is not None]
        padded, found = r.pad_packed_sequence(packed, not batch_first, 7.0, total_length=4)
        return [packed.data, *indices, padded, found]

    agree(run, normal((3, 3, 2)), device=device)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_sequence(batch_first, side, device):
    def run(m, *given):
        return m.nn.utils.rnn.pad_sequence(given, batch_first, -1.0, side)

    agree(run, normal((2, 3)), normal((4, 3)), normal((1, 3)), device=device)
    agree(run, np.arange(3), np.arange(1), device=device)


def test_sequences_come_back(device):
    def scenario(m, device):
        r = m.nn.utils.rnn
        given = [m.arange(n).to(device) for n in (2, 1, 3)]
        packed = r.pack_sequence(given, enforce_sorted=False)
        padded = r.pad_sequence(given)
        apart = r.unpad_sequence(padded, m.tensor([2, 1, 3]))
        return [parts(packed), r.unpack_sequence(packed), apart, parts(packed.double())]

    packed = [[0, 0, 0, 1, 1, 2], [3, 2, 1], [2, 0, 1], [1, 2, 0]]
    given = [[0, 1], [0], [0, 1, 2]]
    gives([packed, given, given, packed], scenario, device)


def test_moving_a_packed_sequence(device):
    packed = rnn.pack_sequence([lucid_gpu.zeros(2), lucid_gpu.zeros(3)], enforce_sorted=False)
    there = packed.to(device)
    assert {t.device.type for t in (there.data, *there[2:])} == {there.data.device.type}
    assert there.batch_sizes.device.type == "cpu"
    assert there.to(there.data.device) is there
    assert there.cpu().half().data.dtype is lucid_gpu.float16
    assert not packed.is_cuda


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, r: r.pack_padded_sequence(m.zeros(3, 2, 4), [2, 3]), "must be sorted in decre"),
        (lambda m, r: r.pack_padded_sequence(m.zeros(3, 2, 4), [2, 0]), "has to be greater than 0"),
        (lambda m, r: r.pack_padded_sequence(m.zeros(3, 2, 4), [3]), "Expected `len(lengths)` to"),
        (lambda m, r: r.pack_padded_sequence(m.zeros(0, 2), [2, 1]), "Cannot pack empty tensors."),
        (lambda m, r: r.pack_padded_sequence(m.zeros(0, 2), m.ones(1, 2)), "Cannot pack empty"),
        (lambda m, r: r.pack_padded_sequence(m.zeros(3, 2), m.ones(1, 2)), "should be a 1D CPU"),
        (
            lambda m, r: r.pad_packed_sequence(r.pack_sequence([m.zeros(3)]), total_length=2),
            "Expected total_length to be at least the length",
        ),
        (lambda m, r: r.pad_sequence([]), "received an empty list of sequences"),
        (lambda m, r: r.pad_sequence([[1, 2], [3]]), "expected Tensor as element 0 in argument 0"),
        (lambda m, r: r.pad_sequence(3), "Expected iterable for input sequences"),
        (lambda m, r: r.pad_sequence([m.zeros(1)], padding_side="up"), "one of left or right, but"),
        (lambda m, r: r.pad_sequence([m.zeros(1, 2), m.zeros(1, 3)]), "must have one shape but"),
        (lambda m, r: r.PackedSequence(m.zeros(3, 2)), "Expected data to be a list or tuple of"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m, m.nn.utils.rnn), words)


def test_lengths_beyond_the_input_are_refused():
    with pytest.raises(RuntimeError, match="lengths has 4, but the input has 3 steps only"):
        rnn.pack_padded_sequence(lucid_gpu.zeros(3, 1), [4])
