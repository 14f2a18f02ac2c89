"""A line search for the strong Wolfe conditions, by cubic interpolation."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

__all__ = ["Point", "cubic_minimum", "strong_wolfe"]


class Point(NamedTuple):
    """Step length, value, gradient, and slope along the line."""

    t: float
    value: float
    gradient: Any
    slope: float


def strong_wolfe(
    at: Callable[[float], Point],
    t: float,
    start: Point,
    size: float,
    most: int,
    tolerance: float,
    c1: float = 1e-4,
    c2: float = 0.9,
) -> tuple[Point, int]:
    """A step that goes down enough and along which the slope has become small enough.

    Nocedal and Wright, Numerical optimization, algorithms 3.5 and 3.6, with the safeguards of
    Schmidt's minFunc.

    Parameters
    ----------
    at : callable
        The point of a step length.
    t : float
        The first length to try.
    start : Point
        Of length 0.
    size : float
        The largest element of the direction.
    most : int
        Evaluations after the first.
    tolerance : float
        A bracket whose change of the parameters is below this is not divided further.
    c1, c2 : float
        How far down, and how flat, is enough.

    Returns
    -------
    Point and number of evaluations
    """

    def too_high(point: Point) -> bool:
        return point.value > start.value + c1 * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    before, here, n = start, at(t), 0
    while n < most:
        if too_high(here) or (n > 1 and here.value >= before.value):
            break
        if flat(here):
            return here, n + 1
        if here.slope >= 0:
            break
        low, high = here.t + 0.01 * (here.t - before.t), here.t * 10
        before, here = here, at(cubic_minimum(before, here, low, high))
        n += 1
    else:
        before = start
    bracket = [before, here]
    best = _lower(bracket)
    stuck = False
    while n < most and abs(bracket[1].t - bracket[0].t) * size >= tolerance:
        t, stuck = _inside(bracket, stuck)
        here = at(t)
        n += 1
        if too_high(here) or here.value >= bracket[best].value:
            bracket[1 - best] = here
            best = _lower(bracket)
            continue
        done = flat(here)
        if not done and here.slope * (bracket[1 - best].t - bracket[best].t) >= 0:
            bracket[1 - best] = bracket[best]
        bracket[best] = here
        if done:
            break
    return bracket[best], n + 1


def _lower(bracket: list[Point]) -> int:
    return 0 if bracket[0].value <= bracket[1].value else 1


def _inside(bracket: list[Point], stuck: bool) -> tuple[float, bool]:
    """The next length to try: not twice running close to an end of the bracket."""
    low, high = sorted([point.t for point in bracket])
    t = cubic_minimum(bracket[0], bracket[1], low, high)
    margin = 0.1 * (high - low)
    if min(high - t, t - low) >= margin:
        return t, False
    if not (stuck or t >= high or t <= low):
        return t, True
    return (high - margin if abs(t - high) < abs(t - low) else low + margin), False


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with these slopes is least (algorithm 3.6, eq. 3.59)."""
    if a.t > b.t:
        a, b = b, a
    if a.t == b.t:
        return (low + high) / 2.0
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = sqrt(square)
    curve = b.slope - a.slope + 2 * d2
    if curve == 0:
        return (low + high) / 2.0
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / curve), low), high)
