"""A hand-written kernel: a device function template of `kernels/`, launched by instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.launch.function import Function, extent
from lucid_gpu.launch.signature import parameters, substituted
from lucid_gpu.launch.source import c_type

Form = str | Callable[..., str]


class Kernel:
    """A device function of `kernels/`, as a kernel.

    Parameters
    ----------
    source : str
        The file, such as ``"softmax.cu"``, or a text of several lines.
    name : str
        The device function: ``LUCID_FN void name(...)``, perhaps a template.
    declaration : str
        Its parameters as C writes them. ``const T*`` is read, ``T*`` is written.
    template : str
        Its template parameters, such as ``"T, WIDTH"``.
    threads : int
        The most threads a block has, and how many it has unless a launch says otherwise.
    forms : mapping, optional
        For parameters that are structures: their fields and padding in `struct`'s letters, or a
        function that gives them for the template's values. Their arguments are sequences of
        numbers, or the bytes of the structure.
    blocks : int, optional
        How many blocks a multiprocessor shall hold at least: the compiler gives a thread as many
        registers as that leaves. By default it chooses, and may rather spill than hold fewer.

    Examples
    --------
    >>> softmax_rows = Kernel(
    ...     "softmax.cu", "softmax_rows", "const T* x, T* y, int columns", template="T"
    ... )
    >>> softmax_rows(rows, (x, y, columns), T=float32)
    """

    def __init__(
        self,
        source: str,
        name: str,
        declaration: str,
        template: str = "",
        threads: int = 256,
        forms: Mapping[str, Form] | None = None,
        blocks: int | None = None,
    ) -> None:
        self.text = source if "\n" in source else f'#include "{source}"\n'
        self.name = name
        self.declaration = declaration
        self.template = tuple(template.replace(",", " ").split())
        self.threads = threads
        self.bounds = f"{threads}" if blocks is None else f"{threads}, {blocks}"
        self.forms = dict(forms or {})
        self.parameters = parameters(declaration)
        self._functions: dict[Any, Function] = {}

    def __call__(
        self,
        grid: int | Sequence[int],
        arguments: Sequence[Any],
        *,
        threads: int | Sequence[int] | None = None,
        shared: int = 0,
        reads: int | None = None,
        writes: int | None = None,
        **template: Any,
    ) -> None:
        """Launch an instance where the arrays live.

        Parameters
        ----------
        grid : int or sequence of int
            Blocks; with none of them nothing is launched.
        arguments : sequence
            Arrays for pointers (row-major, unless strides go with them; None is a null pointer) and
            numbers, which are packed as the type they are declared with.
        threads : int or sequence of int, optional
            Of a block.
        shared : int
            Bytes of dynamic shared memory of a block.
        reads, writes : int, optional
            Bytes moved, for the profiler; by default the arrays' sizes.
        **template
            Element types for type parameters, numbers for the others.

        Raises
        ------
        TypeError, OverflowError
            For an argument that is not what its parameter declares; nothing is launched.
        RuntimeError
            Where the source does not compile or the launch fails.
        """
        function = self._functions.get(tuple(template.items()))
        if function is None:
            function = self.instance(**template)
        block = extent(self.threads if threads is None else threads)
        function(extent(grid), block, arguments, shared, reads, writes)

    def instance(self, **template: Any) -> Function:
        """The kernel for some template arguments, not yet compiled."""
        key = tuple(template.items())
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._instance(template)
        return found

    def _instance(self, template: dict[str, Any]) -> Function:
        if set(template) != set(self.template):
            raise TypeError(
                f"the template arguments of {self.name} are ({', '.join(self.template)}); got "
                f"({', '.join(template)})"
            )
        names = [template[n].name for n in self.template if isinstance(template[n], dtype)]
        name = "_".join(["lucid", self.name, *names])
        values = {n: _text(template[n]) for n in self.template}
        forms = {n: f(**template) if callable(f) else f for n, f in self.forms.items()}
        bound = [p.bound(values) for p in self.parameters]
        return Function(name, self._source(name, values), bound, self.threads, forms)

    def _source(self, name: str, values: Mapping[str, str]) -> str:
        given = f"<{', '.join(values.values())}>" if values else ""
        return (
            f"{self.text}\n"
            f'extern "C" __global__ void __launch_bounds__({self.bounds})\n'
            f"{name}({substituted(self.declaration, values)})\n"
            "{\n"
            f"    {self.name}{given}({', '.join(p.name for p in self.parameters)});\n"
            "}\n"
        )


def _text(value: Any) -> str:
    """A template argument in C."""
    if isinstance(value, dtype):
        return c_type(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
