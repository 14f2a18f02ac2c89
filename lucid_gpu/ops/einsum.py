"""Sums of products by subscripts: pairs of operands, one after another, as matrix products.

A pair's subscripts are of four kinds: kept and in both (a batch), in the first or the second only
(rows, columns), and in both but not kept (summed). Permuted to these groups a pair is one batched
matrix product; without summed subscripts, or without rows and columns, it is elementwise and fuses.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.ops.arguments import no_tensor, takes_out
from lucid_gpu.ops.diagonals import diagonal
from lucid_gpu.ops.record import leads_back
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import own, permute, reshape, squeeze
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of implicit outputs
Label = str | int  # a dimension of an ellipsis is a number: -1 is its last
Labeled = tuple[Tensor, tuple[Label, ...]]


class Form(NamedTuple):
    """An equation for operands of known ranks: the labels of each, and of the result."""

    terms: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]


@op(autocast="lower")
def einsum(*args: Any) -> Tensor:
    """Sum of products of operands' elements, by Einstein's convention.

    Parameters
    ----------
    equation : str
        Such as ``"bij,bjk->bik"``: a letter for each dimension of each operand, ``...`` for any
        number of them, which broadcast. A letter twice in a term takes a diagonal. Without ``->``
        the result has the letters that occur once, in alphabetical order.
    operands : Tensor
        One for each term, or one sequence of them. Instead of an equation each operand may be
        followed by a list of numbers below 52 (and ``...``), the result's list being last.

    Returns
    -------
    Tensor

    Raises
    ------
    RuntimeError
        For an equation that does not fit the operands.
    TypeError
        For an equation that is not a str, and operands that are not tensors.
    ValueError
        Without operands.
    """
    equation, operands = _arguments(args)
    form = _form(equation, tuple([len(x._expr.shape) for x in operands]))
    taken = [_taken(x, term, i) for i, (x, term) in enumerate(zip(operands, form.terms))]
    _check_extents(taken)
    path = _path(form, taken) if len(taken) > 2 else ()
    if len(taken) > 1:
        taken = [_without_ones(t) if 1 in t[0]._expr.shape else t for t in taken]
    for i, j in path:
        later, first = taken.pop(max(i, j)), taken.pop(min(i, j))
        if _rank(later, form) < _rank(first, form):  # the result then lies in its order
            later, first = first, later
        needed = set(form.output).union(*[labels for _, labels in taken])
        taken.append(_pair(first, later, needed, form.output))
    if len(taken) == 1:
        product = taken[0]
    else:
        product = _pair(taken[0], taken[1], set(form.output), form.output)
    gone = [label for label in product[1] if label not in form.output]
    result = _over(*_without(product, gone, form.output), form.output)
    return own(result, *operands, copies=False)


# --- equations ------------------------------------------------------------------------------------


def _arguments(args: tuple[Any, ...]) -> tuple[str, Sequence[Tensor]]:
    if len(args) < 2 or (len(args) == 2 and isinstance(args[0], str) and args[1] in ([], ())):
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    equation, operands = args[0], args[1:]
    if isinstance(equation, Tensor):
        lists = [_written_out(numbers) for numbers in args[1::2]]
        operands = args[: 2 * (len(args) // 2) : 2]
        equation = ",".join(lists) + (f"->{_written_out(args[-1])}" if len(args) % 2 else "")
    elif not isinstance(equation, str):
        raise TypeError(
            f"einsum(): argument 'equation' (position 1) must be str, not {type(equation).__name__}"
        )
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    for i, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise no_tensor(i, x, argument=1)
    return equation, operands


def _written_out(numbers: Sequence[Any]) -> str:
    for number in numbers:
        if number is not Ellipsis and not 0 <= number < len(_LETTERS):
            raise ValueError(
                "einsum(): subscript in subscript list is not within the valid range [0, 52)"
            )
    return "".join(["..." if n is Ellipsis else _LETTERS[n] for n in numbers])


@functools.lru_cache(256)
def _form(equation: str, ranks: tuple[int, ...]) -> Form:
    left, arrow, right = equation.partition("->")
    terms, at = [], 0
    for i, text in enumerate(left.split(",")):
        terms.append(_tokens(text, at, f"operand {i}"))
        at += len(text) + 1
    if len(terms) != len(ranks):
        more = "fewer" if len(ranks) < len(terms) else "more"
        raise RuntimeError(
            f"einsum(): {more} operands were provided than specified in the equation"
        )
    labels = [_labels(term, n, i) for i, (term, n) in enumerate(zip(terms, ranks))]
    used = [label for term in labels for label in term]
    dots = range(min([label for label in used if isinstance(label, int)], default=0), 0)
    if not arrow:
        once = [letter for letter in _LETTERS if used.count(letter) == 1]
        return Form(tuple(labels), (*dots, *once))
    wanted = _tokens(right, len(left) + 2, "output")
    for i, token in enumerate(wanted):
        if token in wanted[:i]:
            raise RuntimeError(
                f"einsum(): output subscript {token} appears more than once in the output"
            )
        if token != "..." and token not in used:
            raise RuntimeError(
                f"einsum(): output subscript {token} does not appear in the equation for any input "
                "operand"
            )
    output = [dots if token == "..." else (token,) for token in wanted]
    return Form(tuple(labels), tuple([label for part in output for label in part]))


def _tokens(text: str, start: int, where: str) -> list[str]:
    """The letters and the ellipsis of a term that starts at a place of the equation."""
    tokens: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == ".":
            if "..." in tokens:
                known = "but an ellipsis (...)" if where == "output" else "for which an ellipsis"
                raise RuntimeError(f"einsum(): found '.' for {where} {known} was already found")
            if text[position : position + 3] != "...":
                raise RuntimeError(
                    f"einsum(): found '.' for {where} that is not part of any ellipsis"
                )
            tokens.append("...")
            position += 2
        elif char in _LETTERS:
            tokens.append(char)
        elif char != " ":
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {start + position} in the equation "
                "string, subscripts must be in [a-zA-Z]"
            )
        position += 1
    return tokens


def _labels(term: list[str], rank: int, i: int) -> tuple[Label, ...]:
    letters = len([t for t in term if t != "..."])
    if "..." not in term and letters != rank:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({letters}) does not match the "
            f"number of dimensions ({rank}) for operand {i} and no ellipsis was given"
        )
    if letters > rank:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({letters}) is more than the "
            f"number of dimensions ({rank}) for operand {i}"
        )
    parts = [range(letters - rank, 0) if t == "..." else (t,) for t in term]
    return tuple([label for part in parts for label in part])


# --- operands -------------------------------------------------------------------------------------


def _taken(x: Tensor, labels: tuple[Label, ...], i: int) -> Labeled:
    """An operand with every label once: the diagonal of those that are repeated."""
    for label in dict.fromkeys(labels) if len(set(labels)) < len(labels) else ():
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            if x.shape[a] != x.shape[b]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {i} but the sizes don't "
                    f"match, {x.shape[b]} != {x.shape[a]}"
                )
            x = diagonal(x, 0, a, b)
            labels = (*[other for d, other in enumerate(labels) if d not in (a, b)], label)
    return x, labels


def _path(form: Form, taken: list[Labeled]) -> Sequence[tuple[int, ...]]:
    """Which operands to take next, as places among those that are left."""
    from lucid_gpu.backends import opt_einsum

    if not opt_einsum.enabled:
        return [(0, 1), *[(0, n) for n in range(len(taken) - 2, 0, -1)]]
    every = dict.fromkeys([label for _, labels in taken for label in labels])
    letter = {label: chr(0x100 + i) for i, label in enumerate(every)}
    terms = ["".join([letter[k] for k in labels]) for _, labels in taken]
    output = "".join([letter[k] for k in form.output])
    return opt_einsum.path(f"{','.join(terms)}->{output}", tuple([(*x.shape,) for x, _ in taken]))


def _rank(operand: Labeled, form: Form) -> list[int]:
    """The places of an operand's labels in the result."""
    places = [form.output.index(k) for k in operand[1] if k in form.output]
    return sorted(places) or [len(form.output)]


def _check_extents(taken: list[Labeled]) -> None:
    seen: dict[Label, int] = {}
    for i, (x, labels) in enumerate(taken):
        for label, n in zip(labels, x._expr.shape, strict=True):
            before = seen.get(label, 1)
            if n not in (1, before) and before != 1:
                name = label if isinstance(label, str) else "of '...'"
                raise RuntimeError(
                    f"einsum(): subscript {name} has size {n} for operand {i} which does not "
                    f"broadcast with previously seen size {before}"
                )
            seen[label] = before if n == 1 else n


def _without_ones(operand: Labeled) -> Labeled:
    """Without labels of extent 1, along which an operand broadcasts as if it did not have them."""
    x, labels = operand
    ones = [d for d, n in enumerate(x._expr.shape) if n == 1]
    return squeeze(x, ones), tuple([k for d, k in enumerate(labels) if d not in ones])


def _without(operand: Labeled, gone: Iterable[Label], order: Sequence[Label] = ()) -> Labeled:
    """Summed over some labels; those in ``order`` come first then, in that order."""
    x, labels = operand
    gone = tuple(gone)
    if not gone:
        return operand
    if order:
        x, labels = _in_order(operand, order)
    kept = tuple([label for label in labels if label not in gone])
    return x.sum([labels.index(label) for label in gone]), kept


def _in_order(operand: Labeled, order: Sequence[Label]) -> Labeled:
    """With the labels of ``order`` first, as there, and then the others."""
    x, labels = operand
    place = {label: i for i, label in enumerate(order)}
    lying = tuple(sorted(labels, key=lambda k: place.get(k, len(place))))
    if lying == labels:
        return operand
    return permute(x, [labels.index(k) for k in lying]), lying


def _pair(
    first: Labeled, second: Labeled, needed: set[Label], order: Sequence[Label] = ()
) -> Labeled:
    """The product of two operands, summed over what nobody needs.

    Labels stand in the result as in ``order``, where that is possible, and then the others.
    """
    alone = set(first[1]).difference(second[1], needed)
    others = set(second[1]).difference(first[1], needed)
    if alone:
        first = _without(first, [k for k in first[1] if k in alone], order)
    if others:
        second = _without(second, [k for k in second[1] if k in others], order)
    (x, a), (y, b) = first, second
    batch, rows, columns, summed, turned = _groups(
        a, b, frozenset(needed), tuple(order), not (alone or others)
    )
    if turned:
        (x, a), (y, b) = (y, b), (x, a)
    if summed and (rows or columns):
        left = _grouped(x, a, batch, rows, summed)
        right = _grouped(y, b, batch, summed, columns)
        product: Tensor = left @ right
        if order and len(product._expr.shape) == 2:  # PyTorch's is a batch of one
            leads_back(product, [(0, 1), (0, 1)])
        if len(rows) != 1 or len(columns) != 1:
            extents = [x.shape[a.index(k)] for k in rows] + [y.shape[b.index(k)] for k in columns]
            product = reshape(product, (*product.shape[: len(batch)], *extents))
        return product, (*batch, *rows, *columns)
    every = [*batch, *rows, *columns]
    if order:
        place = {label: i for i, label in enumerate(order)}
        every.sort(key=lambda k: place.get(k, len(place)))
    if summed and x.dtype is not y.dtype:
        raise RuntimeError(
            f"expected scalar type {x.dtype.type_name} but found {y.dtype.type_name}"
        )
    every += summed
    product = _over(x, a, every) * _over(y, b, every)
    total, labels = _without((product, tuple(every)), summed)
    return total.to(product.dtype), labels


@functools.lru_cache(1 << 10)
def _groups(
    a: tuple[Label, ...],
    b: tuple[Label, ...],
    needed: frozenset[Label],
    order: tuple[Label, ...],
    whole: bool,
) -> tuple[list[Label], list[Label], list[Label], list[Label], bool]:
    """Return a pair's labels by kind, and whether it is turned, as PyTorch turns it."""
    batch = [k for k in a if k in b and k in needed]
    summed = [k for k in a if k in b and k not in needed]
    rows, columns = [k for k in a if k not in b], [k for k in b if k not in a]
    place = {label: i for i, label in enumerate(order)}
    if order:
        for group in (batch, rows, columns):
            group.sort(key=lambda k: place.get(k, len(place)))
    known = rows and columns and summed and whole
    if known and place.get(columns[-1], len(place)) < place.get(rows[0], 0):
        return batch, columns, rows, summed, True
    return batch, rows, columns, summed, False


def _over(x: Tensor, labels: Sequence[Label], every: Sequence[Label]) -> Tensor:
    """Permuted as its labels stand among others, whose extents are 1."""
    x = permute(x, tuple([labels.index(k) for k in every if k in labels]))
    if len(labels) == len(every):
        return x
    extents = iter(x.shape)
    return reshape(x, [next(extents) if k in labels else 1 for k in every])


def _not_broadcast(operand: Labeled, other: Labeled, needed: set[Label]) -> Labeled:
    """Without summed labels of extent 1 in one of the two: the other one's are summed alone."""
    x, labels = operand
    y, others = other
    for label in labels:
        if label not in others or label in needed:
            continue
        n, m = x.shape[labels.index(label)], y.shape[others.index(label)]
        if n != m:
            d = labels.index(label)
            x = squeeze(x, d) if n == 1 else x.sum(d, dtype=x.dtype)
            labels = (*labels[:d], *labels[d + 1 :])
    return x, labels


def _grouped(
    x: Tensor, labels: Sequence[Label], batch: Any, rows: list[Label], columns: list[Label]
) -> Tensor:
    """Permuted to batch, rows, columns; the last two groups one dimension each."""
    order = tuple([labels.index(k) for k in (*batch, *rows, *columns)])
    x = permute(x, order)
    if len(rows) == len(columns) == 1:
        return x
    groups = rows, columns
    extents = [math.prod([x.shape[order.index(labels.index(k))] for k in g]) for g in groups]
    return reshape(x, (*x.shape[: len(batch)], *extents))


# --- the same by numbers of dimensions ------------------------------------------------------------


@op(autocast={"cpu": "lower", "cuda": "promote"})
@takes_out
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Products summed over pairs of dimensions, one of each tensor.

    Parameters
    ----------
    dims : int, or two sequences of int, or Tensor of shape (2, n)
        How many: the last of ``a`` with the first of ``b``. Or which, in pairs.

    Returns
    -------
    Tensor
        Of the other dimensions of ``a``, then those of ``b``.

    Raises
    ------
    RuntimeError
        For contracted dimensions of different sizes or given twice, for too many of them, and for
        two types.
    IndexError
        For a dimension that there is not.
    """
    first, second = _paired(a, b, dims)
    left: list[Label] = list(range(a.ndim))
    right: list[Label] = list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(
                "contracted dimensions need to match, but first has size "
                f"{a.shape[i]} in dim {i} and second has size {b.shape[j]} in dim {j}"
            )
        right[j] = i
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"both inputs should have same dtype, got {a.dtype.name} and {b.dtype.name}"
        )
    needed = set(left).symmetric_difference(right)
    one, other = (a, tuple(left)), (b, tuple(right))
    one, other = _not_broadcast(one, other, needed), _not_broadcast(other, one, needed)
    return _pair(one, other, needed)[0]


def _paired(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    dim_lists = [[d] if isinstance(d, int) else list(d) for d in dims]
    if len(dim_lists[0]) != len(dim_lists[1]):
        raise RuntimeError("both dimension lists should have same length")
    pairs = [[normalize_dim(d, t.ndim) for d in one] for one, t in zip(dim_lists, (a, b))]
    for one in pairs:
        for d in one:
            if one.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return pairs[0], pairs[1]


@op(autocast="lower")
@takes_out
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Products summed over the last dimensions, ``(*a, n)`` and ``(*b, n)`` to ``(*a, *b)``.

    RuntimeError if the last dimensions differ.

    With a number, all products.
    """
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


METHODS = (inner,)
FUNCTIONS = (einsum, tensordot, inner)
