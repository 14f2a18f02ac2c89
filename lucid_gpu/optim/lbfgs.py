"""Limited-memory BFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.nn.parameter import is_lazy
from lucid_gpu.ops.complex_views import view_as_real
from lucid_gpu.ops.foreach import update_in_place
from lucid_gpu.ops.shape import cat
from lucid_gpu.optim.line_search import Point, cubic_minimum, strong_wolfe
from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.optim.settings import settings
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["LBFGS"]

State = dict[str, Any]


class LBFGS(Optimizer):
    r"""L-BFGS: steps by an inverse Hessian that the last gradients tell of (Nocedal, 1980).

    The direction is ``-H g``, computed by the two loops over the last steps ``s`` and changes of
    the gradient ``y`` (Nocedal and Wright, Numerical optimization, algorithm 7.4). Each `step`
    makes up to ``max_iter`` of them, of length ``lr`` or as the line search finds.

    Parameters
    ----------
    params : iterable of Tensor, any shapes
        One group of parameters on one device; a complex number counts as two real ones.
    lr : float
    max_iter, max_eval : int
        Iterations and evaluations of the closure in a step; ``max_eval`` is 1.25 ``max_iter``.
    tolerance_grad, tolerance_change : float
        The largest gradient, and the change of loss or parameters, at which a step ends.
    history_size : int
    line_search_fn : {None, "strong_wolfe"}

    Raises
    ------
    ValueError
        For several groups.
    """

    _reads_whole = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, settings(locals(), "lr"))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._refuse([(p, p, {}) for p in self.param_groups[0]["params"] if not is_lazy(p)])

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Go down from where the parameters are.

        Parameters
        ----------
        closure : callable
            Clears the gradients, evaluates the model, calls ``backward`` and returns the loss.

        Returns
        -------
        What the closure returned the first time.

        Raises
        ------
        RuntimeError
            For another ``line_search_fn``.
        """
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        with no_grad():
            return self._descend(enable_grad()(closure), self.state[group["params"][0]], **group)

    def _descend(
        self,
        closure: Callable[[], Any],
        state: State,
        *,
        params: list[Tensor],
        lr: float | Tensor,
        max_iter: int,
        max_eval: int,
        tolerance_grad: float,
        tolerance_change: float,
        history_size: int,
        line_search_fn: str | None,
        **_: Any,
    ) -> Any:
        first = closure()
        loss, grad = _number(first), _flat_gradient(params)
        state["func_evals"] = state.get("func_evals", 0) + 1
        state.setdefault("n_iter", 0)
        evaluations = 1
        if _largest(grad) <= tolerance_grad:
            return first
        for n in range(1, max_iter + 1):
            state["n_iter"] += 1
            _remember(state, grad, history_size)
            d, before = state["d"], loss
            state["prev_flat_grad"], state["prev_loss"] = grad, loss
            total = grad.abs().sum().item() if state["n_iter"] == 1 else 1.0
            t = float(lr) / total if total > 1 else float(lr)
            state["t"] = t
            slope = grad.dot(d).item()
            if slope > -tolerance_change:
                break
            more = 0
            if line_search_fn:
                at = _along(params, d, closure)
                start, left = Point(0.0, loss, grad, slope), max_eval - evaluations
                point, more = strong_wolfe(at, t, start, _largest(d), left, tolerance_change)
                state["t"], loss, grad = point.t, point.value, point.gradient
            _move(params, d, state["t"])
            if not line_search_fn and n < max_iter:  # the last step's loss is the next call's first
                loss, grad, more = _number(closure()), _flat_gradient(params), 1
            evaluations += more
            state["func_evals"] += more
            if (
                evaluations >= max_eval
                or _largest(grad) <= tolerance_grad
                or _largest(d) * abs(state["t"]) <= tolerance_change
                or abs(loss - before) < tolerance_change
            ):
                break
        return first


def _remember(state: State, grad: Tensor, history_size: int) -> None:
    """Take the last step into the history, and find the next direction."""
    if state["n_iter"] == 1:
        state.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return
    y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
    ys = y.dot(s)
    changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
    if ys > 1e-10:
        if len(changes) == history_size:
            for some in (changes, steps, ro):
                some.pop(0)
        changes.append(y)
        steps.append(s)
        ro.append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y)
    al = state["al"] = [None] * history_size
    d = -grad
    for i in range(len(changes) - 1, -1, -1):
        al[i] = steps[i].dot(d) * ro[i]
        d = d - changes[i] * al[i]
    d = d * state["H_diag"]
    for i in range(len(changes)):
        d = d + steps[i] * (al[i] - changes[i].dot(d) * ro[i])
    state["d"] = d


def _along(params: list[Tensor], d: Tensor, closure: Callable[[], Any]) -> Callable[[float], Point]:
    """The loss as a function of the step's length; the parameters stay as they are."""
    kept = [p.detach().clone() for p in params]

    def at(t: float) -> Point:
        _move(params, d, t)
        value, gradient = _number(closure()), _flat_gradient(params)
        for p, old in zip(params, kept, strict=True):
            p.copy_(old)
        return Point(t, value, gradient, gradient.dot(d).item())

    return at


def _number(loss: Any) -> float:
    """What a closure returned, a tensor with history or a number."""
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _move(params: list[Tensor], d: Tensor, t: float) -> None:
    reals = [_real(p) for p in params]
    parts = d.split([p.numel() for p in reals])
    rows = [(p, part.reshape(p.shape)) for p, part in zip(reals, parts, strict=True)]
    update_in_place(_moved, rows, 1, {"t": t})


def _moved(p: Tensor, d: Tensor, *, t: Tensor) -> tuple[Tensor, ...]:
    return (p + d * t,)


def _flat_gradient(params: list[Tensor]) -> Tensor:
    grads = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in params]
    dense = [(g.to_dense() if g._is_sparse else g).detach() for g in grads]
    return cat([_real(g.resolve_conj()).reshape(-1) for g in dense])


def _real(t: Tensor) -> Tensor:
    """The real and imaginary parts of a complex tensor, in its memory; any other itself."""
    return view_as_real(t) if t.is_complex() else t


def _largest(vector: Tensor) -> Any:
    return vector.abs().max().item()


# --- the line search as packages call PyTorch's ---------------------------------------------------


def _strong_wolfe(
    obj_func: Callable[..., tuple[Any, Tensor]],
    x: Any,
    t: Any,
    d: Tensor,
    f: Any,
    g: Tensor,
    gtd: Any,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, Tensor, float, int]:
    """Value, gradient and length of a step from ``x`` along ``d``, and how many were tried."""

    def at(t: float) -> Point:
        value, gradient = obj_func(x, t, d)
        kept = gradient.clone()  # packages return a buffer that the next call overwrites
        return Point(t, float(value), kept, gradient.dot(d).item())

    start = Point(0.0, float(f), g.clone(), float(gtd))
    found, n = strong_wolfe(at, float(t), start, _largest(d), max_ls, tolerance_change, c1, c2)
    return found.value, found.gradient, found.t, n


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> float:
    """Where the cubic through two points with these slopes is least, within the bounds."""
    first = Point(float(x1), float(f1), None, float(g1))
    second = Point(float(x2), float(f2), None, float(g2))
    low, high = (min(x1, x2), max(x1, x2)) if bounds is None else bounds
    return cubic_minimum(first, second, float(low), float(high))
