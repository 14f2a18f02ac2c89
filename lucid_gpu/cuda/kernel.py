"""Users' kernels: CUDA C with a typed signature, called with tensors.

The signature is C's declaration. It says what a kernel reads (``const``) and writes, which numbers
it takes as which type, and which arrays may have strides; all of that is checked before anything is
launched, and what is written counts as written in place.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucid_gpu.cuda.operands import buffers, check, device_of, element_type, size_of
from lucid_gpu.dtypes import dtype
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.kernel import Function, extent
from lucid_gpu.launch.signature import NUMBERS, Parameter, parameters
from lucid_gpu.launch.source import c_type, included
from lucid_gpu.launch.taking import declared as in_c

__all__ = ["UserKernel", "kernel"]

_DECLARED = re.compile(r"\s*(?:void\s+)?([A-Za-z_]\w*)\s*\((.*)\)\s*;?\s*", re.DOTALL)
_MOST_THREADS = 1024


def kernel(
    source: str,
    signature: str,
    *,
    template: str = "T",
    threads: int = 256,
    cpu: Callable[..., Any] | None = None,
) -> UserKernel:
    """A kernel of one's own, to be called with tensors.

    Parameters
    ----------
    source : str
        CUDA C with a function ``__global__ void name(...)``. It may use the types of ``template``
        and, for each, ``compute_T``: the type arithmetic on it is done in (float for 16-bit
        floats). `strided` is known, see below.
    signature : str
        Its declaration: ``"name(const T* x, T* y, float slope, long long n)"``. A ``const T*`` is
        read, a ``T*`` written (and may be read), both contiguous. A ``strided<const T, 2> x`` takes
        an array of two dimensions with any strides; in C it is indexed ``x(i, j)``, or ``x[k]`` by
        row-major number, and has ``x.shape[d]``. Everything else is a number, packed as the type it
        is declared with.
    template : str
        Names in the signature that denote an element type, that of the tensors passed there:
        one source for float32, float64, float16 and bfloat16.
    threads : int
        Of a block, unless a call says otherwise.
    cpu : callable, optional
        Its NumPy version, called for tensors in host memory with the same arguments, arrays
        for tensors; it writes into the arrays.

    Returns
    -------
    UserKernel

    Raises
    ------
    ValueError
        For a signature that cannot be read or that is not what the source declares.

    Examples
    --------
    >>> leaky = lucid_gpu.cuda.kernel(
    ...     '''
    ...     __global__ void leaky(const T* x, T* y, float slope, long long n)
    ...     {
    ...         const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ...         if (i < n) y[i] = x[i] > 0 ? x[i] : x[i] * slope;
    ...     }
    ...     ''',
    ...     "leaky(const T* x, T* y, float slope, long long n)",
    ... )
    >>> leaky(x, y, 0.01, x.numel())
    """
    return UserKernel(source, signature, template, threads, cpu)


class UserKernel:
    """A kernel made by `kernel`; call it with the arguments of its signature.

    Attributes
    ----------
    name : str
    parameters : sequence of Parameter

    Raises
    ------
    TypeError
        For a source or a signature that is not a str, and a ``cpu`` that cannot be called.
    """

    def __init__(
        self,
        source: str,
        signature: str,
        template: str,
        threads: int,
        cpu: Callable[..., Any] | None,
    ) -> None:
        for role, text in (("source", source), ("signature", signature)):
            if not isinstance(text, str):
                raise TypeError(f"kernel() takes its {role} as a str; got {type(text).__name__}")
        if cpu is not None and not callable(cpu):
            raise TypeError(f"kernel() takes a function as cpu=; got {type(cpu).__name__}")
        matched = _DECLARED.fullmatch(signature)
        if matched is None:
            raise ValueError(
                f"cannot read the signature {signature!r}; it is a kernel's name and parameters, "
                "such as 'scale(const T* x, T* y, float factor, long long n)'"
            )
        if not 0 < threads <= _MOST_THREADS:
            raise ValueError(f"a block has 1 to {_MOST_THREADS} threads; got threads={threads}")
        self.name: str = matched[1]
        self.parameters = parameters(matched[2])
        self.threads = threads
        self._cpu = cpu
        used = {p.type for p in self.parameters}
        self._template = [n for n in template.replace(",", " ").split() if n in used]
        unused = set(template.replace(",", " ").split()) - used - {"T"}
        if unused:
            raise ValueError(f"{self.name}: no parameter is declared with {min(unused)}")
        self._check_types()
        self._source = _exported(source, self.name)
        _check_declaration(source, self.name, self.parameters)
        self._functions: dict[tuple[dtype, ...], Function] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {len(self.parameters)} parameters>"

    def __call__(
        self,
        *arguments: Any,
        grid: int | Sequence[int] | None = None,
        threads: int | Sequence[int] | None = None,
        shared: int = 0,
        size: int | None = None,
        **named: Any,
    ) -> None:
        """Launch the kernel on the current stream of the tensors' device.

        Parameters
        ----------
        *arguments, **named
            Those of the signature: tensors or arrays (None for a null pointer) and numbers.
        grid : int or sequence of int, optional
            Blocks; by default, as many as give ``size`` threads.
        threads : int or sequence of int, optional
            Of a block.
        shared : int
            Bytes of dynamic shared memory of a block.
        size : int, optional
            Threads wanted; by default the elements of the first array that is written. With none
            nothing is launched.

        Raises
        ------
        TypeError, ValueError, OverflowError
            For an argument that is not what the signature declares.
        RuntimeError
            For tensors on different devices, for those whose gradient would be lost, where the
            source does not compile (`lucid_gpu.launch.compile_errors.CompileError`, with the
            compiler's log), where the launch fails.
        """
        operands = self._bound(arguments, named)
        where = device_of(self.name, self.parameters, operands)
        function = self._function(self._types(operands))
        for parameter, argument in zip(function.parameters, operands, strict=True):
            check(self.name, parameter, argument)
        function.check_numbers(operands)
        block = self._extent("threads", self.threads if threads is None else threads)
        if self._integer("shared", shared) < 0:
            raise ValueError(f"{self.name}: shared is not negative; got {shared}")
        blocks = self._grid(operands, grid, block, size)
        function.check(blocks, block)
        if 0 in blocks:
            return
        if runs_cuda_c(where):
            function.prepare(where)
            function(blocks, block, buffers(self.name, self.parameters, operands), shared)
        elif self._cpu is not None:
            self._cpu(*buffers(self.name, self.parameters, operands))
        else:
            raise RuntimeError(
                f"the kernel {self.name} is CUDA C and its tensors are on {where}: move them to a "
                "GPU, give its NumPy twin as kernel(..., cpu=function), or set "
                "LUCID_EXECUTOR=host-cuda to run the CUDA C on the host, slowly"
            )

    def _bound(self, arguments: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        """The arguments in the order of the signature."""
        names = [p.name for p in self.parameters]
        by_name = dict(zip(names, arguments))
        twice = [n for n in named if n in by_name]
        missing = [n for n in names if n not in by_name and n not in named]
        unknown = [n for n in named if n not in names]
        if len(arguments) > len(names) or twice or missing or unknown:
            wrong = (
                (missing, "{} missing"),
                (twice, "{} given twice"),
                (unknown, "there is no {}"),
            )
            what = "".join("; " + words.format(", ".join(of)) for of, words in wrong if of)
            raise TypeError(
                f"{self.name} takes {len(names)} arguments ({', '.join(names)}); got "
                f"{len(arguments) + len(named)}{what}"
            )
        by_name.update(named)
        return [by_name[n] for n in names]

    def _types(self, operands: Sequence[Any]) -> dict[str, dtype]:
        """What each template name stands for."""
        types: dict[str, dtype] = {}
        first: dict[str, str] = {}
        for p, argument in zip(self.parameters, operands, strict=True):
            if not p.pointer or p.type not in self._template or argument is None:
                continue
            d = element_type(self.name, p, argument)
            if types.setdefault(p.type, d) is not d:
                raise TypeError(
                    f"{self.name}: {first[p.type]} and {p.name} are both declared with {p.type}; "
                    f"expected one element type, got {types[p.type].name} and {d.name}"
                )
            first.setdefault(p.type, p.name)
        for n in self._template:
            if n not in types:
                raise TypeError(f"{self.name}: no array says what {n} stands for; got None only")
        return types

    def _grid(
        self,
        operands: Sequence[Any],
        grid: int | Sequence[int] | None,
        block: tuple[int, int, int],
        size: int | None,
    ) -> tuple[int, int, int]:
        if grid is not None:
            if size is not None:
                raise TypeError(f"{self.name}: give grid or size, not both")
            return self._extent("grid", grid)
        if size is None:
            written = [
                argument
                for p, argument in zip(self.parameters, operands, strict=True)
                if p.pointer and not p.const and argument is not None
            ]
            if not written:
                raise TypeError(f"{self.name} writes no array in this call: give grid or size")
            size = size_of(written[0])
        if self._integer("size", size) < 0:
            raise ValueError(f"{self.name}: size is not negative; got {size}")
        return extent(-(-size // max(block[0] * block[1] * block[2], 1)))

    def _integer(self, role: str, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"{self.name}: {role} is an integer; got {value!r}") from None

    def _extent(self, role: str, value: int | Sequence[int]) -> tuple[int, int, int]:
        sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not 0 < len(sizes) <= 3:
            raise ValueError(f"{self.name}: {role} is one number to three; got {value!r}")
        return extent([self._integer(role, n) for n in sizes])

    def _function(self, types: Mapping[str, dtype]) -> Function:
        """The kernel for some element types."""
        key = tuple(types.values())
        function = self._functions.get(key)
        if function is None:
            bound = {n: c_type(d) for n, d in types.items()}
            lines = [
                f"typedef {_USER_TYPES.get(d.name, bound[n])} {n};\n"
                f"typedef lucid_compute<{n}>::type compute_{n};\n"
                for n, d in types.items()
            ]
            # Included before the user's first line, so that the user's lines keep their numbers.
            headers = [f'#include "{n}"\n' for n in ("user.cuh", *included(self._source))]
            text = "".join([*headers, *lines, f'#line 1 "{self.name}.cu"\n', self._source])
            parts = [p.bound(bound) for p in self.parameters]
            function = self._functions[key] = Function(self.name, text, parts, _MOST_THREADS, {})
        return function

    def _check_types(self) -> None:
        for p in self.parameters:
            if not p.pointer and p.type not in NUMBERS and p.type not in self._template:
                raise ValueError(
                    f"{self.name}: {p.name} is declared {p.type!r}; by value a kernel takes "
                    f"{', '.join(NUMBERS)}"
                )
        pointed = {p.type for p in self.parameters if p.pointer}
        for n in self._template:
            if n not in pointed:
                raise ValueError(
                    f"{self.name}: no pointer is declared with {n}, which would say it"
                )
        if all(p.const or not p.pointer for p in self.parameters):
            raise ValueError(
                f"{self.name} writes nothing: a parameter that is written is a pointer without "
                "const, such as 'T* y'"
            )


# --- a user's source ----------------------------------------------------------------------------

_USER_TYPES = {"float16": "float16", "bfloat16": "bfloat16"}  # they convert by themselves


def _definition(source: str, name: str) -> re.Match[str]:
    """Where a source defines a kernel; comments count as blanks."""
    blank = re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), source, flags=re.DOTALL
    )
    match = re.search(
        r'(?P<template>template\s*<[^>]*>\s*)?(?P<extern>extern\s+"C"\s+)?(?P<word>__global__)'
        r"[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?"
        rf"\b{name}\s*\((?P<list>[^{{}};]*)\)\s*\{{",
        blank,
    )
    if match is None:
        raise ValueError(
            f"the source defines no kernel {name}: there is no '__global__ void {name}(...) {{'"
        )
    return match


def _exported(source: str, name: str) -> str:
    """The source with its kernel under the name it is declared with."""
    match = _definition(source, name)
    if match["template"]:
        raise ValueError(
            f"the source declares {name} as a template; leave {match['template'].strip()!r} out: "
            "the names of template= are types of their own, defined for each call"
        )
    at = match.start("word")
    return source if match["extern"] else f'{source[:at]}extern "C" {source[at:]}'


def _check_declaration(source: str, name: str, declared: Sequence[Parameter]) -> None:
    """Source and signature must agree; a list that cannot be read is left to the compiler."""
    match = _definition(source, name)
    try:
        there = parameters(match["list"])
    except ValueError:
        return
    if len(there) != len(declared):
        raise ValueError(
            f"the signature of {name} has {len(declared)} parameters "
            f"({', '.join(p.name for p in declared)}), the source {len(there)} "
            f"({', '.join(p.name for p in there)})"
        )
    for mine, theirs in zip(declared, there, strict=True):
        if _kind(mine) != _kind(theirs):
            raise ValueError(
                f"the signature of {name} says '{in_c(mine)}', the source '{in_c(theirs)}'"
            )


def _kind(p: Parameter) -> tuple[Any, ...]:
    alike = {"unsigned int": "unsigned"}
    return alike.get(p.type, p.type), p.pointer, p.pointer and p.const, p.dimensions
