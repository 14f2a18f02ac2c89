"""Random programs of elementwise ops against torch: ``make fuzz ARGS="--minutes 60"``.

Every row of the op table that PyTorch has too, reductions and views, over all types, with shapes
that broadcast, are empty or 0-d, and layouts with gaps. Values, shapes, types, errors and gradients
must be torch's. Hypothesis shortens what fails; its last op is then left out, and the search goes
on. The exit status says whether anything failed.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import lucid_gpu
from lucid_gpu.fusion.optable import TABLE
from tools import endurance

Step = tuple[str, int, int, int]
Leaf = tuple[str, int, int, int]

TYPES = {  # and how exactly results of theirs agree
    "bool": 0.0, "uint8": 0.0, "int8": 0.0, "int16": 0.0, "int32": 0.0, "int64": 0.0,
    "float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-10,
    "complex64": 1e-4, "complex128": 1e-9,
}  # fmt: skip
SHAPES = [(), (1,), (3,), (2, 3), (2, 1), (1, 3), (0, 3), (2, 1, 3), (0,)]
LACKING = ("not implemented for", "not supported")  # what torch says of types it leaves out
ODD = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, 1e30]
# Where a rounding before it decides the result, an op is used on leaves only.
JUMPS = {
    *("sign", "sgn", "floor", "ceil", "round", "trunc", "floor_divide", "remainder", "fmod"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or"),
    *("logical_xor", "copysign", "where", "isnan", "isinf", "isfinite", "atan2", "erfinv", "ndtri"),
}
# On a branch cut of complex numbers the sign of a rounding's zero decides: leaves only.
CUTS = {
    *("acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "log", "log10", "log1p", "log2"),
    *("pow", "rsqrt", "sqrt"),
}
FAULTS = (  # of torch, whose formulas of gradients cannot do what its ops can
    *("with a bool tensor", "on a bool tensor", "doesn't match the broadcast shape"),
)
# torch gives NaN to huge arguments of zeta, to 0 ** 0 of complex, and to i0 and i1 at infinity
FRAIL = {"zeta", "pow", "i0", "i1"}
ROUGH = {"digamma"}  # whose gradient torch computes less exactly than its type says, and at poles
OTHERS: dict[str, tuple[int, Callable[..., Any]]] = {  # operands, and the function of a module
    "sum": (1, lambda m, x: m.sum(x)),
    "sum of rows": (1, lambda m, x: m.sum(x, -1)),
    "mean": (1, lambda m, x: m.mean(x, -1, keepdim=True)),
    "amax": (1, lambda m, x: m.amax(x, -1)),
    "prod": (1, lambda m, x: m.prod(x)),
    "var": (1, lambda m, x: m.var(x, -1)),
    "any": (1, lambda m, x: m.any(x)),
    "cumsum": (1, lambda m, x: m.cumsum(x, 0)),
    "softmax": (1, lambda m, x: m.softmax(x, -1)),
    "transpose": (1, lambda m, x: x.transpose(0, -1)),
    "first": (1, lambda m, x: x[0]),
    "every second": (1, lambda m, x: x[..., ::2]),
    "expand": (1, lambda m, x: x.expand(2, *x.shape)),
    "cat": (2, lambda m, x, y: m.cat((x, y), 0)),
    "matmul": (2, lambda m, x, y: m.matmul(x, y)),
    "lerp": (3, lambda m, x, y, z: m.lerp(x, y, z)),
    "addcmul": (3, lambda m, x, y, z: m.addcmul(x, y, z, value=0.5)),
    "clamp": (3, lambda m, x, y, z: m.clamp(x, y, z)),
    "times two": (1, lambda m, x: x * 2),
    "plus half": (1, lambda m, x: 0.5 + x),
    "to the third": (1, lambda m, x: x**3),
}


def _row(name: str) -> Callable[..., Any]:
    def call(m: Any, *operands: Any) -> Any:
        function = getattr(m, name, None) or getattr(m.special, name)
        return function(*operands)

    return call


def ops() -> dict[str, tuple[int, Callable[..., Any]]]:
    """Every op by name."""
    names = [row for row in TABLE if hasattr(torch, row) or hasattr(torch.special, row)]
    return {**{name: (TABLE[name].arity, _row(name)) for name in names}, **OTHERS}


OPS = ops()


@functools.cache
def array(leaf: Leaf) -> Any:
    """The elements of a leaf: small numbers, now and then odd ones; form 1 has gaps."""
    kind, shape, form, start = leaf
    rng = np.random.default_rng(start)
    sizes = SHAPES[shape]
    wide = (*sizes[:-1], sizes[-1] * 2) if form == 1 and sizes else sizes
    values = rng.integers(-8, 9, wide) / 4
    if form == 2:
        values = np.where(rng.random(wide) < 0.3, rng.choice(ODD, wide), values)
    if kind.startswith("complex"):
        values = values + 1j * rng.integers(-8, 9, wide) / 4
    elif "float" not in kind:
        values = np.nan_to_num(np.abs(values) * 4 if kind == "uint8" else values * 4, posinf=9)
        values = values.clip(-100, 100)
    return values


def tensor(m: Any, leaf: Leaf, grad: bool) -> Any:
    """A leaf, the same in both modules."""
    made = m.tensor(array(leaf).tolist(), dtype=m.float64 if "complex" not in leaf[0] else None)
    if "complex" in leaf[0]:
        made = m.tensor(array(leaf).tolist(), dtype=m.complex128)
    made = made.reshape(array(leaf).shape).to(getattr(m, leaf[0]))
    made = made[..., ::2] if leaf[2] == 1 and made.ndim else made
    made = made.detach()
    return made.requires_grad_() if grad and _float(leaf[0]) else made


def _float(kind: str) -> bool:
    return "float" in kind


def kind_of(t: Any) -> str:
    """The name of a tensor's type."""
    return str(t.dtype).rpartition(".")[2]


def values_of(t: Any) -> Any:
    """Elements in double precision."""
    t = t.detach().resolve_conj() if t.is_complex() else t.detach()
    wide = "complex128" if t.is_complex() else "float64" if t.is_floating_point() else None
    m = torch if isinstance(t, torch.Tensor) else lucid_gpu
    t = t.to(getattr(m, wide)) if wide else t
    return t.numpy(force=True)  # torch's zeros that are written nowhere too


def same(
    mine: Any, theirs: Any, what: str, inputs: str, nearby: Callable[[float], Any] | None = None
) -> None:
    """Shape, type and values agree as exactly as the coarsest type on the way does.

    Where not, ``nearby`` gives what torch makes of operands that differ by a rounding: a step may
    have made more of it.
    """
    assert tuple(mine.shape) == tuple(theirs.shape), f"{what}: {mine.shape} {theirs.shape}"
    assert kind_of(mine) == kind_of(theirs), f"{what}: {kind_of(mine)}, torch {kind_of(theirs)}"
    a, b = values_of(mine), values_of(theirs)
    if a.dtype.kind in "bui":
        exact = np.array_equal(a, b)
    else:
        tolerance = max(TYPES[inputs], TYPES[kind_of(theirs)])
        scale = np.abs(b[np.isfinite(b)]).max(initial=1)
        if a.dtype.kind == "c":  # which of its parts is infinite, which NaN, is left open
            lost = ~np.isfinite(a) & ~np.isfinite(b)
            a, b = np.where(lost, 0, a), np.where(lost, 0, b)
        least = tolerance * min(scale, 1e6)
        exact = np.allclose(a, b, tolerance, least, equal_nan=True)
        if not exact and nearby:
            around = [values_of(nearby(by)) for by in (tolerance, -tolerance)]
            spread = sum(np.abs(near - b) for near in around) + tolerance * np.abs(b) + least
            exact = bool((~(np.abs(a - b) > 2 * spread)).all())
    assert exact, f"{what}: {a.tolist()}, torch {b.tolist()}"


def compare(leaves: list[Leaf], steps: list[Step], grad: bool, avoid: set[str]) -> str:
    """Run a program on both sides; returns its last op, AssertionError says what differs."""
    theirs = [tensor(torch, leaf, grad) for leaf in leaves]
    mine = [tensor(lucid_gpu, leaf, grad) for leaf in leaves]
    first = len(leaves)
    coarse = max((leaf[0] for leaf in leaves), key=lambda kind: TYPES[kind])
    used: list[str] = []
    path: list[Any] = []
    for name, *places in steps:
        count, function = OPS[name]
        limit = first if name in JUMPS else len(theirs)
        picked = [place % limit for place in places[:count]]
        if name in avoid:
            continue
        if name in CUTS and any(p >= first and theirs[p].is_complex() for p in picked):
            continue
        what = f"{name} of {[(kind_of(theirs[p]), tuple(theirs[p].shape)) for p in picked]}"
        LAST[0] = name
        try:
            made = function(torch, *[theirs[p] for p in picked])
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            if any(words in str(error) for words in LACKING):
                continue  # what the CPU of torch lacks, we may have
            try:
                got = function(lucid_gpu, *[mine[p] for p in picked])
            except NotImplementedError:
                continue  # which of two errors is said first
            except (RuntimeError, TypeError, IndexError, ValueError) as ours:
                assert isinstance(ours, type(error)) or isinstance(error, type(ours)), (
                    f"{what}: {ours!r}, torch {error!r}"
                )
                continue
            raise AssertionError(f"{what}: {got}, torch raises {error!r}") from None
        if kind_of(made) not in TYPES:
            continue  # complex numbers of 16-bit floats
        try:
            found = function(lucid_gpu, *[mine[p] for p in picked])
        except NotImplementedError:
            continue  # a type that we leave out, and say so
        if (
            name in FRAIL
            and not (made.dtype.is_floating_point and name == "pow")
            and not np.isfinite(values_of(made)).all()
        ):
            continue
        if used and not np.abs(values_of(made)).max(initial=0) < 1e4:
            continue  # how it overflows is decided by the last bit
        here = [theirs[p] for p in picked]
        nearby = (lambda by, f=function, of=here: f(torch, *moved(of, by))) if used else None
        same(found, made, what, coarse, nearby)
        assert found.requires_grad == made.requires_grad, f"{what}: requires_grad"
        coarse = max(coarse, kind_of(made), key=lambda kind: TYPES[kind])
        theirs.append(made)
        mine.append(found)
        if name == "atan2" and not all(theirs[p].is_floating_point() for p in picked):
            grad = False  # torch squares whole numbers there in their own, narrow type
        used.append(name)
        path.append((function, picked))
    if grad and used:
        gradients(mine, theirs, path, coarse, " then ".join(used))
    return LAST[0]


LAST = [""]


def moved(tensors: list[Any], by: float) -> list[Any]:
    """Tensors of floats, away from zero or toward it by about a rounding."""
    return [
        (t + by * (t + torch.where(t == 0, 1, t.sgn()))).to(t.dtype).requires_grad_(grad)
        if t.is_floating_point() or t.is_complex()
        else t
        for t, grad in [(t.detach(), t.requires_grad) for t in tensors]
    ]


def gradients(mine: list[Any], theirs: list[Any], path: list[Any], coarse: str, what: str) -> None:
    """The gradients of a weighted sum of the last result."""
    first = len(theirs) - len(path)

    def nearby(by: float, wanted: int) -> Any:
        made = moved(theirs[:first], by)
        leaf = made[[i for i, t in enumerate(made) if t.requires_grad][wanted]]
        for function, picked in path:
            made.append(function(torch, *[made[p] for p in picked]))
        return torch.autograd.grad((made[-1] * 0.75).sum(), leaf)[0]

    if not theirs[-1].requires_grad or theirs[-1].is_complex():
        return
    read = [place for _, picked in path for place in picked]
    wanted = [t.detach() for t in theirs[:first] if t.requires_grad]
    if len({*read}) < len(read) and any((t.abs() > 1e4).any() for t in wanted):
        return  # beside a huge number, what goes to a tensor by two ways cancels
    found, starts = [], []
    for m, values in ((torch, theirs), (lucid_gpu, mine)):
        leaves = [t for t in values[:first] if t.requires_grad]
        starts.append(leaves)
        total = (values[-1] * 0.75).sum()
        try:
            found.append(m.autograd.grad(total, leaves, allow_unused=True))
        except RuntimeError as error:
            if m is torch and any(words in str(error) for words in (*FAULTS, *LACKING)):
                return
            found.append(type(error))
    if "floor_divide" in what or "zeta" in what:  # without a gradient there, with one here
        return
    if isinstance(found[0], type):
        assert found[0] is found[1], f"gradient of {what}: {found[1]}, torch raises {found[0]}"
        return
    assert not isinstance(found[1], type), f"gradient of {what} raises {found[1]}"
    for i, (b, a) in enumerate(zip(*found, strict=True)):
        if a is None or b is None:
            assert not any(g is not None and values_of(g).any() for g in (a, b)), what
        elif np.isfinite(values_of(b)).all():
            rough = any(name in what for name in ROUGH)
            if not rough or np.isfinite(values_of(a)).all():
                kinds = (coarse, "float32") if rough else (coarse,)
                a, b = (  # beside a huge number the order of a sum decides
                    g.masked_fill(x.detach().abs() > 1e4, 0)
                    for g, x in ((a, starts[1][i]), (b, starts[0][i]))
                )
                coarsest = max(kinds, key=lambda kind: TYPES[kind])
                same(a, b, f"gradient of {what}", coarsest, functools.partial(nearby, wanted=i))


LEAVES = st.lists(
    st.tuples(
        st.sampled_from([*TYPES, "float32", "float64"]),
        st.integers(0, len(SHAPES) - 1),
        st.integers(0, 2),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=3,
)
PLACES = [st.integers(0, 5)] * 3
STEPS = st.lists(st.tuples(st.sampled_from(sorted(OPS)), *PLACES), min_size=1, max_size=5)


def search(number: int, examples: int, avoid: set[str]) -> str | None:
    """What differs in the shortest program that hypothesis finds, if any."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, print_blob=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(LEAVES, STEPS, st.booleans())
    def check(leaves: Any, steps: Any, grad: bool) -> None:
        try:
            compare(leaves, steps, grad, avoid)
        except Exception as error:
            LAST[1:] = [f"{error}\n    {leaves} {steps} grad={grad}"]
            raise

    try:
        check()
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return f"{type(error).__name__}: {LAST[1] if len(LAST) > 1 else error}"
    return None


def main() -> int:
    """Search until the time is over."""
    parser = argparse.ArgumentParser(description="Ops against torch.", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="in bench/results/endurance.md")
    args = parser.parse_args()
    run = endurance.Run("fuzz", args.seed)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    end, number, avoid = time.monotonic() + 60 * args.minutes, args.seed, set[str]()
    programs, differing = 0, list[str]()
    while time.monotonic() < end:
        found = search(number, 500, avoid)
        number, programs = number + 1, programs + 500
        if found:
            print(f"\n[{LAST[0]}] {found}", flush=True)
            differing.append(f"{LAST[0]}: {found}")
            avoid.add(LAST[0])
        print(f"\r{programs} programs, {len(avoid)} ops differ ", end="", flush=True)
    names = ", ".join(sorted(avoid)) or "none"
    print(f"\nseed {args.seed}: {programs} programs; differing: {names}")
    if args.keep:
        run.keep(
            f"{programs:,} programs of {len(OPS)} ops", f"ops that differ: {names}",
            programs=programs, ops=len(OPS), differing=differing, torch=torch.__version__,
        )  # fmt: skip
    return 1 if avoid else 0


if __name__ == "__main__":
    sys.exit(main())
