"""Universal functions with CuPy's loops: its types, its refusals, no `where`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy

from cupy import _core
from cupy._loops import LOOPS


def _dtype_of(letter: str) -> numpy.dtype[Any]:
    return _core.bfloat16 if letter == "E" else numpy.dtype(letter)


def _score(kind: type) -> int:
    if issubclass(kind, numpy.bool_):
        return 0
    if issubclass(kind, (numpy.integer, int)):
        return 1
    if issubclass(kind, (numpy.inexact, float, complex)):
        return 2
    return 3


class ufunc:
    """One row of CuPy's table, computed by NumPy."""

    def __init__(self, name: str, ufunc_name: str, nin: int, nout: int, types: list[str]) -> None:
        self.name, self.__name__ = ufunc_name, ufunc_name
        self.nin, self.nout, self.nargs = nin, nout, nin + nout
        self.types = types
        self._compute = getattr(numpy, name)
        self._loops = []
        for row in types:
            taken, given = row.split("->")
            self._loops.append(([_dtype_of(c) for c in taken], [_dtype_of(c) for c in given]))
        self._found: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for x in args:
            if hasattr(x, "__cupy_override_elementwise_kernel__"):
                return x.__cupy_override_elementwise_kernel__(self, *args, **kwargs)
        out = kwargs.pop("out", None)
        kwargs.pop("_where", None)
        dtype = kwargs.pop("dtype", None)
        casting = kwargs.pop("casting", "same_kind")
        if kwargs:
            raise TypeError(f"Wrong arguments {kwargs}")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or "
                f"{self.nargs} (with outputs), but given {len(args)}."
            )
        taken, outs = list(args[: self.nin]), list(args[self.nin :])
        if out is not None:
            if outs:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            outs = list(out) if isinstance(out, tuple) else [out]
        outs += [None] * (self.nout - len(outs))
        return self._run(taken, outs, dtype, casting)

    def _run(self, taken: list[Any], outs: list[Any], dtype: Any, casting: Any) -> Any:
        hosts: list[Any] = []
        taken = [_core.taken(x) for x in taken]
        for x in [*taken, *[o for o in outs if o is not None]]:
            if _core.is_array(x):
                hosts.append(_core.host_of(x))
            elif isinstance(x, _core.SCALARS):
                hosts.append(x)
            else:
                _core.refuse(x)
        hosts = hosts[: self.nin]
        ins, results = self._loop_of(hosts, dtype)
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ready = [
                h.astype(t, copy=False) if isinstance(h, numpy.ndarray) else _number(h, t)
                for h, t in zip(hosts, ins, strict=True)
            ]
            shape = numpy.broadcast_shapes(*[numpy.shape(x) for x in ready])
            given = [o.shape for o in outs if o is not None]
            wide = numpy.broadcast_shapes(shape, *given)
            if any(s != wide for s in given):
                raise ValueError(f"operands could not be broadcast together: {shape}, {given}")
            found = self._computed(ready, ins)
            found = found if isinstance(found, tuple) else (found,)
            found = tuple([
                numpy.asarray(f).astype(t, copy=False) for f, t in zip(found, results, strict=True)
            ])  # fmt: skip
        answer = []
        for f, o in zip(found, outs, strict=True):
            if o is None:
                answer.append(_core.place(f))
                continue
            if not numpy.can_cast(f.dtype, o.dtype, casting):
                raise TypeError(
                    f"output (typecode '{_core.letter(f.dtype)}') could not be coerced to provided "
                    f"output parameter (typecode '{_core.letter(o.dtype)}') according to the "
                    f'casting rule "{casting}"'
                )
            _core.write(o, f)
            answer.append(o)
        return answer[0] if self.nout == 1 else tuple(answer)

    def _computed(self, ready: list[Any], ins: list[Any]) -> Any:
        integers = all(t.kind in "iu" for t in ins)
        if integers and self.__name__ in _DIVIDING:  # a GPU gives 0 or garbage, never an error
            ready[1] = numpy.where(ready[1] == 0, ready[1].dtype.type(1), ready[1])
        return self._compute(*ready)

    def _loop_of(self, hosts: list[Any], dtype: Any) -> Any:
        """The first loop that takes the operands, as CuPy chooses it."""
        strong = [h.dtype for h in hosts if hasattr(h, "dtype")]
        weak = [type(h) for h in hosts if not hasattr(h, "dtype")]
        key = tuple([h.dtype if hasattr(h, "dtype") else type(h) for h in hosts]), dtype
        if key in self._found:
            return self._found[key]
        most = max([_score(d.type) for d in strong], default=-1)
        use_weak = bool(strong) and bool(weak) and most >= max(_score(w) for w in weak)
        for ins, outs in self._loops:
            if dtype is not None:
                if outs[0] == _core.get_dtype(dtype):
                    break
                continue
            if all(_takes(h, t, use_weak) for h, t in zip(hosts, ins, strict=True)):
                break
        else:
            raise TypeError(
                f"Wrong type ({', '.join(str(getattr(h, 'dtype', type(h))) for h in hosts)}) of "
                f"arguments for {self.name}"
            )
        self._found[key] = ins, outs
        return ins, outs

    def outer(self, A: Any, B: Any, **kwargs: Any) -> Any:
        return self(A.reshape(A.shape + (1,) * B.ndim), B, **kwargs)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        op = {"cupy_add": "add", "cupy_maximum": "max", "cupy_minimum": "min"}.get(self.name)
        if op is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        from cupy import _indexing

        _indexing.scatter(a, indices, b, op)

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        if self.name == "cupy_add":
            return array.sum(axis, dtype, out, keepdims)
        if self.name == "cupy_multiply":
            return array.prod(axis, dtype, out, keepdims)
        raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")

    def accumulate(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        if self.name == "cupy_add":
            return array.cumsum(axis, dtype, out)
        if self.name == "cupy_multiply":
            return array.cumprod(axis, dtype, out)
        raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")

    def reduceat(
        self, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        if self.name != "cupy_add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        host, places = _core.host_of(array), _core.host_of(indices)
        return _core.place(numpy.add.reduceat(host, places, axis, dtype))


_DIVIDING = ("cupy_floor_divide", "cupy_remainder", "cupy_fmod", "cupy_divmod")


def _number(value: Any, t: numpy.dtype[Any]) -> Any:
    """A number in a loop's type; a Python integer that does not fit is refused as NumPy does."""
    if isinstance(value, int) and not isinstance(value, bool) and t.kind in "iu":
        return numpy.asarray(value, t)  # raises OverflowError
    return numpy.asarray(value).astype(t)


def _takes(host: Any, t: numpy.dtype[Any], use_weak: bool) -> bool:
    if hasattr(host, "dtype"):
        return bool(numpy.can_cast(host.dtype, t))
    if use_weak:
        if isinstance(host, complex):
            return t.kind == "c"
        return _score(type(host)) <= _score(t.type)
    return bool(numpy.can_cast(numpy.asarray(host).dtype, t))


def all_of_them() -> dict[str, ufunc]:
    found: dict[str, ufunc] = {}
    for name, (ufunc_name, nin, nout, types) in LOOPS.items():
        found[name] = ufunc(name, ufunc_name, nin, nout, types.split())
    return found
