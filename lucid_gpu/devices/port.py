"""What every backend offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype

# Why what reads an array on the host cannot be made again.
READ_ONCE = "the host reads a value there, which a replay would not do again"


class Calls(Protocol):
    """What a step asks for beside the functions of a backend: here all of it is done at once.

    Where ``records`` is true it is noted too, to be made again on other values: nobody looks at
    values on the host then.
    """

    records: bool = False

    def call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives that computes on arrays, or writes them, from its arguments alone.

        ``name`` is what a person calls it.
        """
        return function(*args)

    def aside(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives that is made once and kept, as a table: no call of it is noted."""
        return function(*args)

    def draw(self, generator: Any, seed: int, offset: int) -> tuple[int, int]:
        """Seed and offset of a generator's draw, as calls take them: each time those of then."""
        return seed, offset

    def once(self, what: str, why: str) -> None:
        """Refuse ``what`` the host does once, if it is noted, and say ``why``."""
        return

    def keep(self, owner: Any, repeated: bool = False) -> None:
        """Say that an object is about to change, which is taken back if noting fails.

        It always is where ``repeated`` says that what is made again makes the change: `repeat`.
        """
        return

    def repeat(self, name: str, change: Callable[..., Any], *args: Any) -> None:
        """Change what Python holds, now and each time that what is noted is made again."""
        change(*args)


class OneDevice(Calls):
    """What backends say alike that have one device each, and no library that fuses or convolves."""

    multiplies_16_bits = False
    joins_rows = False

    def current_index(self) -> int:
        return 0

    def is_current(self, index: int) -> bool:
        return True

    def require_index(self, index: int) -> None:
        """There is one, whatever its number."""

    def matmul_with_vector(self, a: Any, b: Any, d: dtype, vector: Any, sums: bool) -> Any:
        return None

    def matmul_in_background(self, a: Any, b: Any, d: dtype) -> Any:
        return None

    def convolve(self, op: str, a: Any, b: Any, shape: Sequence[int], window: Any) -> Any:
        return None


class Backend(Calls, Protocol):
    """One array library with its memory.

    ``xp`` is the NumPy-like module. Arrays made by `empty` come from the backend's pool and go back
    to it when the last reference is gone. ``multiplies_16_bits`` says that products of 16-bit
    floats take both operands in 16 bits, ``joins_rows`` that row-major matrices times one matrix
    are one product.
    """

    type: str
    multiplies_16_bits: bool
    joins_rows: bool
    xp: Any

    @property
    def address(self) -> Callable[[Any], int]:
        """Where an array's first element lies."""

    def current_index(self) -> int: ...
    def is_current(self, index: int) -> bool:
        """Whether a device of this kind is the one that the calling thread works on."""

    def require_index(self, index: int) -> None:
        """Refuse a device that this machine does not have."""

    def device_of(self, array: Any) -> device: ...
    def is_borrowed(self, array: Any) -> bool:
        """Whether the memory of an array that is not a view belongs to some other object."""

    def empty(self, shape: Sequence[int], d: dtype, where: device) -> Any: ...
    @property
    def new(self) -> Callable[[Sequence[int], Any], Any]:
        """``new(shape, kind)``: as `empty`, of NumPy's type, on the current device."""

    def full(self, shape: Sequence[int], value: Any, d: dtype, where: device) -> Any:
        """An array of one number."""

    def arange(self, count: int, d: dtype, where: device) -> Any:
        """The integers from 0, without a copy from the host."""

    def asarray(self, data: Any, d: dtype, where: device) -> Any:
        """A fresh row-major array of ``data`` (never sharing its memory)."""

    def to_numpy(self, array: Any) -> Any:
        """A NumPy array with the same elements (a copy on a GPU, the array itself on the CPU)."""

    def from_numpy(self, array: Any, where: device) -> Any:
        """An array of this backend with a NumPy array's elements."""

    def item(self, array: Any) -> Any:
        """The only element as a Python number."""

    def matmul(self, a: Any, b: Any, d: dtype, out: Any = None) -> Any:
        """Matrix product in dtype ``d``, 16-bit floats accumulating in float32.

        ``out`` is a row-major array to write, or None. Where ``d`` has 16 bits it may be float32;
        then sums are stored as they are.
        """

    def matmul_of_rows(self, a: Any, b: Any, d: dtype) -> Any:
        """``a.T @ b`` of matrices; with ``joins_rows`` of all rows of arrays (..., m), (..., n)."""

    def matmul_with_vector(self, a: Any, b: Any, d: dtype, vector: Any, sums: bool) -> Any:
        """A product of matrices with a vector added to its rows, in one kernel.

        With ``sums`` the vector is filled with the sums of ``a``'s rows instead. None where no
        library is preferred that does so, or where it does not take these arrays.
        """

    def matmul_in_background(self, a: Any, b: Any, d: dtype) -> Any:
        """``a.T @ b`` of matrices, computed beside what the caller does next, or None.

        See `lucid_gpu.devices.background_matmul`; its ``out`` is the result once ``end()`` has
        returned.
        """

    def matmul_beside(self, a: Any, b: Any, d: dtype) -> Any:
        """A product of two matrices while another one is computed in the background."""

    def convolve(self, op: str, a: Any, b: Any, shape: Sequence[int], window: Any) -> Any:
        """A convolution or one of its gradients, where a library computes it, or None.

        See `lucid_gpu.devices.cudnn.convolve`.
        """

    def library(self, module: str, name: str, where: device, *arrays: Any, **options: Any) -> Any:
        """A function of ``xp.linalg`` or ``xp.fft``; it raises numpy.linalg.LinAlgError."""

    def argsort(self, array: Any, dim: int) -> Any:
        """The stable order of a dimension, NaNs last."""

    def synchronize(self) -> None: ...
    def host_record(self, count: int) -> tuple[Any, int]:
        """Integers on the host that kernels can write: an array, and its address for them."""
