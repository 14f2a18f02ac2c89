"""Rules beside an op's body: how a primitive acts on batches and on tangents.

What is neither elementwise nor a composition is a *primitive*. Its file holds its forward on
arrays, its vjp, its jvp where that is cheaper than two vjps, and its batching rule. A rule is
registered by one entry in a table here; `lucid_gpu.func` and `lucid_gpu.autograd` read the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.tape.door import body_of
from lucid_gpu.tape.levels import ENDED, Level, open_levels

__all__ = ["BATCHING", "JVP", "UNBATCHED", "Batch", "Call", "batching", "jvp", "on_value"]

Rule = Callable[..., Any]
BATCHING: dict[Any, Rule] = {}  # by op
UNBATCHED: set[Any] = set()  # ops whose rule is asked though no argument is batched
JVP: dict[Any, Rule] = {}  # by vjp
_REFUSED = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)


# --- batches --------------------------------------------------------------------------------------


def batching(*ops: Any, unbatched: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule by which ops act on batched tensors; it stands below their bodies.

    It is called as ``rule(level, op, *arguments)`` with a `Batch`. Most rules call the op again on
    the values, with every dimension one further, and wrap the result; one that returns
    NotImplemented leaves the call to the body. Without a rule an op is tried as it is written, and
    otherwise runs one example at a time.

    Parameters
    ----------
    unbatched : bool
        Call the rule, with the innermost `vmap`, though no argument is batched: for random ops.

    Raises
    ------
    TypeError
        For a function that is not an op.
    """
    for function in ops:
        if body_of(function) is function:
            raise TypeError(f"batching(): {function.__name__} is no op; mark it with @op first")

    def register(rule: Rule) -> Rule:
        BATCHING.update(dict.fromkeys(ops, rule))
        if unbatched:
            UNBATCHED.update(ops)
        return rule

    return register


class Batch(Level):
    """One call of `vmap`, as batching rules see it.

    Attributes
    ----------
    size : int
        How many examples the batch has.
    randomness : {"error", "different", "same"}
    asleep : bool
        Whether random ops are left to the levels further out, for now.
    """

    batches = True

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.asleep = False
        self.size = size
        self.randomness = randomness

    def wrap(self, value: Any) -> Any:
        """A batched tensor; ``value`` has the batch in front."""
        raise NotImplementedError

    def wrap_all(self, values: Any) -> Any:
        """Batched tensors, one or a tuple."""
        if not isinstance(values, tuple):
            return self.wrap(values)
        wrapped = [self.wrap(v) for v in values]
        return type(values)(*wrapped) if hasattr(values, "_fields") else tuple(wrapped)

    def holds(self, value: Any) -> bool:
        """Whether a value is batched at this level, first of all."""
        wrapper = getattr(value, "_wrapper", None)
        return wrapper is not None and wrapper.level is self

    def value(self, tensor: Any) -> Any:
        """The value of a tensor batched here; anything else as it is."""
        if not self.holds(tensor):
            return tensor
        if self not in open_levels:
            raise RuntimeError(ENDED)
        return tensor._wrapper.value

    def full(self, tensor: Any) -> Any:
        """A value with the batch in front: expanded, without a copy, if there was none."""
        raise NotImplementedError

    def own(self, tensor: Any, lies: bool = False) -> Any:
        """As `full`, but no two examples lie on one memory: each can be written.

        Where ``lies``, each lies as the one there was.
        """
        raise NotImplementedError

    def take_in(self, target: Any, value: Any, name: str) -> None:
        """Make a tensor and its views batched, in place, before ``value`` is written to it.

        Until the level closes. RuntimeError where the examples differ in more than tangents.
        """
        raise NotImplementedError

    def aligned(self, tensor: Any, rank: int) -> Any:
        """A value whose dimensions after the batch face those of tensors of a larger rank."""
        raise NotImplementedError

    def joined(self, tensor: Any) -> Any:
        """A value whose first dimension takes the batch in: a batch of batches as one batch."""
        return self.value(tensor).reshape((self.size * tensor.shape[0], *tensor.shape[1:]))

    def parted(self, results: Any, count: int) -> Any:
        """The reverse of `joined` for results: the batch, and ``count`` of each example."""
        if isinstance(results, tuple):
            return tuple([self.parted(r, count) for r in results])
        return self.wrap(results.reshape((self.size, count, *results.shape[1:])))

    def draws_once(self) -> bool:
        """Whether random ops draw the same for all examples; RuntimeError if they may not."""
        if self.randomness == "error":
            raise RuntimeError(_REFUSED)
        return self.randomness == "same"

    def outside(self, function: Rule, *args: Any, **kwargs: Any) -> Any:
        """Call a random op as the levels further out would have it."""
        self.asleep = True
        try:
            return function(*args, **kwargs)
        finally:
            self.asleep = False


def on_value(level: Batch, f: Rule, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of ops that act alike whatever dimensions their first argument has in front."""
    return level.wrap_all(f(level.value(x), *args, **kwargs))


# --- tangents -------------------------------------------------------------------------------------


def jvp(*vjps: Any) -> Callable[[Rule], Rule]:
    """Register the rule by which ops act on tangents; it stands below their vjp.

    It is found by that vjp, called with a `Call`, and returns a tangent for each result. Without
    one, the vjp is differentiated by its cotangent; a rule is for ops where that is a waste, or
    that save too little because nothing needed a gradient.
    """

    def register(rule: Rule) -> Rule:
        JVP.update(dict.fromkeys(vjps, rule))
        return rule

    return register


class Call:
    """An op as it was recorded: see `ops.record.record`.

    Attributes
    ----------
    vjp : function
    inputs, tangents : sequences
        A tangent is None where an input has none.
    saved : sequence
    results : tuple of Tensor
    attributes : dict
    """

    __slots__ = ("attributes", "inputs", "results", "saved", "tangents", "vjp")

    def __init__(
        self,
        vjp: Rule,
        inputs: Sequence[Any],
        tangents: Sequence[Any],
        saved: Sequence[Any],
        results: tuple[Any, ...],
        attributes: dict[str, Any],
    ) -> None:
        self.vjp, self.inputs, self.tangents = vjp, inputs, tangents
        self.saved, self.results, self.attributes = saved, results, attributes

    def tangent(self) -> Any:
        """The tangent of the only input."""
        (only,) = self.tangents
        return only

    def bilinear(self, product: Rule, *settings: str) -> list[Any]:
        """The tangent of what is linear in each of two inputs: of ``product(a, b, *settings)``."""
        (a, b), (t_a, t_b) = self.inputs, self.tangents
        more = [self.attributes[name] for name in settings]
        if t_b is None:
            return [product(t_a, b, *more)]
        last = product(a, t_b, *more)
        return [last if t_a is None else product(t_a, b, *more) + last]
