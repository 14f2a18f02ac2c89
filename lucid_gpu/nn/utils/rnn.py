"""Sequences of several lengths: padded to one tensor, or packed without padding.

A packed batch lists the first elements of all sequences, then the second ones of those that have
one, and so on; the longest sequence comes first. So each step of a recurrent layer reads the next
``batch_sizes[t]`` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.dtypes import float16, float32, float64, int8, int16, int32, int64, uint8
from lucid_gpu.ops.arguments import no_tensor
from lucid_gpu.ops.creation import arange, as_tensor, full
from lucid_gpu.ops.shape import cat
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """A packed batch, as `pack_padded_sequence` and `pack_sequence` make it.

    Attributes
    ----------
    data : Tensor, shape (rows, *)
    batch_sizes : Tensor of int64, shape (steps,)
        How many sequences have a step; always on the CPU.
    sorted_indices : Tensor of int64, shape (batch,), or None
        Which sequence stands at each place, where they were put in order.
    unsorted_indices : Tensor of int64, shape (batch,), or None
        The place of each sequence.

    Raises
    ------
    ValueError
        For ``batch_sizes`` on a GPU.
    AssertionError
        For one argument that is not a pair.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn."
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With ``data.to(...)``, and the indices on its device; itself where nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [None if t is None else t.to(data.device) for t in self[2:]]
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, device: Any = "cuda") -> PackedSequence:
        """On a GPU."""
        return self.to(device)

    def cpu(self) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu")

    def pin_memory(self) -> PackedSequence:
        """In memory that a GPU reads directly."""
        pinned = [None if t is None else t.pin_memory() for t in (self.data, *self[2:])]
        return type(self)(pinned[0], self.batch_sizes, *pinned[1:])

    def is_pinned(self) -> bool:
        """Whether the data is in such memory."""
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return bool(self.data.is_cuda)


_CONVERSIONS = {
    "double": float64,
    "float": float32,
    "half": float16,
    "long": int64,
    "int": int32,
    "short": int16,
    "char": int8,
    "byte": uint8,
}


def _conversion(name: str, dtype: Any) -> Callable[[PackedSequence], PackedSequence]:
    def method(self: PackedSequence) -> PackedSequence:
        return self.to(dtype=dtype)

    method.__name__, method.__qualname__ = name, f"PackedSequence.{name}"
    method.__doc__ = f"With data of {dtype.name}."
    return method


for _name, _type in _CONVERSIONS.items():
    setattr(PackedSequence, _name, _conversion(_name, _type))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another, shape (n,); None for None."""
    if permutation is None:
        return None
    numbers = arange(permutation.numel(), dtype=permutation.dtype, device=permutation.device)
    return numbers.index_copy(0, permutation, numbers)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A padded batch without its padding.

    Parameters
    ----------
    input : Tensor, shape (steps, batch, *), or (batch, steps, *) with ``batch_first``
    lengths : Tensor of integers on the CPU, or list of int
    batch_first : bool
    enforce_sorted : bool
        Whether the lengths must be given in decreasing order; else the sequences are put in order.

    Raises
    ------
    RuntimeError
        For lengths that are not positive, not in order, too many, or longer than the input.
    """
    lengths = as_tensor(lengths, dtype=int64)
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    _check_lengths(input, lengths)
    steps, batch = input.shape[:2]
    mask = arange(steps).unsqueeze(1) < lengths
    rows = input.reshape(steps * batch, *input.shape[2:])
    sizes = mask.sum(1)
    return PackedSequence(
        rows.index_select(0, _true_positions(mask, input)), sizes[: int(lengths[0])], order, None
    )


def _check_lengths(input: Tensor, lengths: Tensor) -> None:
    """Of input (steps, batch, *)."""
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if lengths.ndim != 1 or lengths.device.type != "cpu":
        kind = NAMES[lengths.dtype].removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.ndim}D {lengths.device} {kind} tensor"
        )
    steps, batch = input.shape[:2]
    length_list: list[int] = lengths.tolist()
    if len(length_list) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(length_list)} "
            f"(batch_size={batch})"
        )
    if min(length_list) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if sorted(length_list, reverse=True) != length_list:
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if length_list[0] > steps:
        raise RuntimeError(f"lengths has {length_list[0]}, but the input has {steps} steps only")


def _true_positions(mask: Tensor, like: Tensor) -> Tensor:
    """The numbers of the elements that are True, row by row, on another tensor's device."""
    return mask.reshape(-1).nonzero().squeeze(1).to(like.device)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A packed batch with padding, and its lengths: undoes `pack_padded_sequence`.

    Parameters
    ----------
    sequence : PackedSequence
    batch_first : bool
    padding_value : float
    total_length : int, optional
        Steps of the result; by default those of the longest sequence.

    Returns
    -------
    Tensor, shape (steps, batch, *), or (batch, steps, *) with ``batch_first``
    Tensor of int64, shape (batch,), on the CPU

    Raises
    ------
    ValueError
        For a ``total_length`` below the longest sequence's.
    """
    data, sizes, _, inverse = sequence
    steps, batch = len(sizes), int(sizes[0])
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but "
            f"got total_length={total_length} and max sequence length being {steps}"
        )
    mask = arange(batch) < sizes.unsqueeze(1)
    lengths = mask.sum(0)
    padded = _padded(data, mask, total_length or steps, padding_value)
    if batch_first:
        padded = padded.transpose(0, 1)
    if inverse is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, inverse), lengths[inverse.cpu()]


def _padded(rows: Tensor, mask: Tensor, count: int, padding_value: float) -> Tensor:
    """Rows at the places where the mask (n, m) is True, shape (count, m, *)."""
    m, rest = mask.shape[1], rows.shape[1:]
    empty = full((count * m, *rest), padding_value, dtype=rows.dtype, device=rows.device)
    return empty.index_copy(0, _true_positions(mask, rows), rows).reshape(count, m, *rest)


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of several lengths as one tensor.

    Parameters
    ----------
    sequences : iterable of Tensor, shapes (length, *)
    batch_first : bool
    padding_value : float
    padding_side : {"right", "left"}

    Returns
    -------
    Tensor, shape (longest, batch, *), or (batch, longest, *) with ``batch_first``

    Raises
    ------
    RuntimeError
        For no sequences, shapes that differ beyond the length, and another side.
    TypeError
        For sequences that are not tensors.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequence_list = list(sequences)
    if not sequence_list:
        raise RuntimeError("received an empty list of sequences")
    for i, s in enumerate(sequence_list):
        if not isinstance(s, Tensor):
            raise no_tensor(i, s)
    if padding_side not in ("right", "left"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    if not all(s.ndim and s.shape[1:] == sequence_list[0].shape[1:] for s in sequence_list):
        raise RuntimeError(
            "pad_sequence: sequences must have one shape but for their length, got "
            f"{[list(s.shape) for s in sequence_list]}"
        )
    lengths = as_tensor([len(s) for s in sequence_list])
    longest = max(len(s) for s in sequence_list)
    steps = arange(longest)
    if padding_side == "left":
        steps = steps.flip(0)
    padded = _padded(
        cat(sequence_list), steps < lengths.unsqueeze(1), len(sequence_list), padding_value
    )
    return padded if batch_first else padded.transpose(0, 1).contiguous()


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a batch padded on the right.

    Parameters
    ----------
    padded_sequences : Tensor, shape (steps, batch, *), or (batch, steps, *) with ``batch_first``
    lengths : Tensor of integers, shape (batch,)
    batch_first : bool

    Returns
    -------
    list of Tensor, shapes (length, *)
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    length_list: list[int] = as_tensor(lengths).tolist()
    return [s[:length] for s, length in zip(padded_sequences.unbind(), length_list, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of shapes (length, *) as a packed batch; see `pack_padded_sequence`."""
    lengths = as_tensor([len(s) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch, shapes (length, *), in the order they were given in."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
