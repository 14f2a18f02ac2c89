"""Connectionist temporal classification on arrays of any device.

Graves et al., "Connectionist Temporal Classification" (2006), sections 4.1 and 4.2. States are the
labels with a blank before, between and after them: 2 s + 1 of them for each sequence, all sequences
of a batch together; the loop is over time only. Everything is kept as logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Problem", "emitted", "gradient", "log_likelihoods", "states"]


class Problem(NamedTuple):
    """Arrays of one call, on its device.

    Attributes
    ----------
    labels : shape (n, 2 s + 1)
        What each state emits.
    skips : bool, shape (n, 2 s + 1)
        Whether a state is reached from two before it: a label after another one.
    times, states : shape (n,)
        How many steps and states of each sequence count.
    """

    xp: Any
    labels: Any
    skips: Any
    times: Any
    states: Any


def states(
    xp: Any, shape: tuple[int, ...], rows: Any, flat: bool, times: Any, lengths: Any, blank: int
) -> Problem:
    """What is to be computed, after all that can be wrong.

    Parameters
    ----------
    xp : module
        Where the arrays of the result lie.
    shape : (t, n, c)
    rows : array of int on the host
        Labels, one row a sequence or, if ``flat``, one after another.
    times, lengths : array of int on the host, shape (n,)
    blank : int
    """
    steps, n, classes = shape
    if times.shape != (n,):
        raise RuntimeError("input_lengths must be of size batch_size")
    if lengths.shape != (n,):
        raise RuntimeError("target_lengths must be of size batch_size")
    if n and (times.max() > steps or times.min() < 0):
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{int(times.max())} (while checking arguments for ctc_loss)"
        )
    longest = int(lengths.max()) if n else 0
    padded: Any = np.full((n, longest), blank, np.int64)
    within = np.arange(longest) < lengths[:, None]
    count = int(lengths.sum()) if flat else n
    if len(rows) != count:
        raise RuntimeError(
            f"Expected tensor to have size {count} at dimension 0, but got size {len(rows)} for "
            "argument #2 'targets' (while checking arguments for ctc_loss)"
        )
    if not flat:
        if rows.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{list(rows.shape)} for argument #2 'targets' (while checking arguments for "
                "ctc_loss)"
            )
        padded[within] = rows[:, :longest][within]
    else:
        padded[within] = rows
    if padded.size and not (padded.min() >= 0 and padded.max() < classes):
        raise RuntimeError(f"ctc_loss: targets must be below {classes}, the classes")
    labels = np.full((n, 2 * longest + 1), blank, np.int64)
    labels[:, 1::2] = padded
    skips = np.zeros(labels.shape, bool)
    skips[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return Problem(xp, *[xp.asarray(a) for a in (labels, skips, times, 2 * lengths + 1)])


def emitted(x: Any, problem: Problem) -> Any:
    """The log-probability of what each state emits: shape (t, n, states)."""
    xp = problem.xp
    return x[:, xp.arange(x.shape[1])[:, None], problem.labels]


def _leap(a: Any, by: int, allowed: Any, xp: Any) -> Any:
    return xp.where(allowed, _shifted(a, by, xp), -np.inf)


def _shifted(a: Any, by: int, xp: Any) -> Any:
    """States moved up by so many; minus infinity comes in."""
    out = xp.full_like(a, -np.inf)
    if abs(by) >= a.shape[1]:
        return out
    if by > 0:
        out[:, by:] = a[:, :-by]
    else:
        out[:, :by] = a[:, -by:]
    return out


def _joined(xp: Any, *terms: Any) -> Any:
    """``log(sum(exp(terms)))``."""
    top = terms[0]
    for term in terms[1:]:
        top = xp.maximum(top, term)
    top = xp.where(xp.isinf(top), 0, top)
    return xp.log(sum([xp.exp(term - top) for term in terms])) + top


def log_likelihoods(emitted: Any, problem: Problem) -> tuple[Any, Any]:
    """Log-probabilities of all beginnings that end in a state, and of the whole, negated."""
    xp, _, skips, times, states = problem
    steps, n, most = emitted.shape
    alpha = xp.full(emitted.shape, -np.inf, emitted.dtype)
    state = xp.arange(most)
    if steps:
        alpha[0] = xp.where((state < 2) & (state < states[:, None]), emitted[0], -np.inf)
    for t in range(1, steps):
        last = alpha[t - 1]
        ways = last, _shifted(last, 1, xp), _leap(last, 2, skips, xp)
        alpha[t] = _joined(xp, *ways) + emitted[t]
    rows = xp.arange(n)
    ends = alpha[xp.maximum(times, 1) - 1, rows]
    final = ends[rows, states - 1]
    before = xp.where(states > 1, ends[rows, xp.maximum(states - 2, 0)], -np.inf)
    losses = -_joined(xp, final, before)
    empty = xp.where(states > 1, np.inf, 0).astype(losses.dtype)  # nothing aligns with nothing
    return alpha, xp.where(times == 0, empty, losses)


def gradient(x: Any, emitted: Any, alpha: Any, losses: Any, problem: Problem) -> Any:
    """``exp(x) - sum over the states of a label of exp(alpha + beta + loss - x)``.

    NaN where no alignment exists.
    """
    xp, labels, skips, times, states = problem
    steps, n, most = emitted.shape
    rows, state = xp.arange(n)[:, None], xp.arange(most)
    ends = (state >= (states - 2)[:, None]) & (state < states[:, None])
    beta = xp.full((n, most), -np.inf, emitted.dtype)  # without what the state itself emits
    onto = xp.zeros_like(skips)  # whether one leaps from a state two ahead
    if most > 2:
        onto[:, :-2] = skips[:, 2:]
    share = xp.zeros_like(emitted)  # of each state in the whole
    for t in range(steps - 1, -1, -1):
        if t + 1 < steps:
            ahead = beta + emitted[t + 1]
            beta = _joined(xp, ahead, _shifted(ahead, -1, xp), _leap(ahead, -2, onto, xp))
        beta = xp.where((times == t + 1)[:, None], xp.where(ends, 0.0, -np.inf), beta)
        beta = beta.astype(emitted.dtype)
        share[t] = xp.where(state < states[:, None], xp.exp(alpha[t] + beta + losses[:, None]), 0)
    same = (labels[:, :, None] == labels[:, None, :]).astype(emitted.dtype)
    total = xp.matmul(share.transpose(1, 0, 2), same).transpose(1, 0, 2)
    of_labels = xp.zeros_like(x)
    of_labels[:, rows, labels] = total  # whichever state of a label writes last
    within = (xp.arange(steps)[:, None] < times)[:, :, None]
    of_labels[:, xp.isinf(losses)] = xp.nan
    return xp.where(within, xp.exp(x) - of_labels, 0)
