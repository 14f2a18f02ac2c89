"""SciPy's minimizers over tensors: values and gradients from here, steps from there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lucid_gpu.autograd.grad import grad
from lucid_gpu.dtypes import float64
from lucid_gpu.ops.creation import from_numpy, zeros_like
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["scipy_minimize"]

_WITHOUT_GRADIENT = ("nelder-mead", "powell", "cobyla", "cobyqa")
_WITH_PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
_WITH_HESSIAN = ("dogleg", "trust-exact")


def scipy_minimize(
    fn: Callable[..., Tensor],
    params: Any,
    method: str = "L-BFGS-B",
    *,
    bounds: Any = None,
    tol: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Minimize a function of tensors by `scipy.optimize.minimize`, and leave them at the minimum.

    SciPy sees one vector of float64, gradients and, for ``"Newton-CG"`` and the trust-region
    methods, products with the Hessian come from here. On a GPU each evaluation moves that vector
    there and the gradient back.

    Parameters
    ----------
    fn : callable
        ``fn()`` or ``fn(params)`` gives the loss, one real number.
    params : Tensor, Module, or list, tuple, dict or iterator of such
        Leaves of any shapes, types and devices. Those that do not require grad stay as they are.
    method : str
        SciPy's name of the method; constrained ones work within their bounds.
    bounds : optional
        ``(low, high)`` for all elements; or a list with such a pair for each parameter, of numbers
        or arrays of its shape (None is no bound); or SciPy's bounds of the whole vector.
    tol : float, optional
    callback : callable, optional
        ``callback(result)`` after each iteration, with SciPy's intermediate result (``x``,
        ``fun``); ``params`` hold its point. StopIteration ends the search.
    options : dict, optional
        SciPy's, such as ``{"maxiter": 100}``.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, ``fun``, ``success``, ``message``, ``nit`` ...

    Raises
    ------
    TypeError, ValueError
        For params that cannot be varied, and losses that are not real numbers. Whatever is raised,
        here, in ``fn`` or in SciPy, params are left as they were.

    Examples
    --------
    >>> import lucid_gpu
    >>> x = lucid_gpu.zeros(2, dtype=lucid_gpu.float64, requires_grad=True)
    >>> result = lucid_gpu.optim.scipy_minimize(lambda: ((x - 3) ** 2).sum(), x)
    >>> result.success, x.tolist()
    (True, [3.0, 3.0])
    """
    from scipy import optimize

    tree = list(params) if hasattr(params, "__next__") else params
    vector = Vector(_varied(tree))
    loss = Loss(fn, tree, vector)
    kind = method.lower() if isinstance(method, str) else ""
    functions: dict[str, Any] = {"jac": kind not in _WITHOUT_GRADIENT}
    functions["fun"] = loss.with_gradient if functions["jac"] else loss.alone
    if kind in _WITH_PRODUCTS:
        functions["hessp"] = loss.hessian_product
    elif kind in _WITH_HESSIAN:
        functions["hess"] = loss.hessian

    def after_each(intermediate_result: Any) -> None:
        vector.write(intermediate_result.x)
        assert callback is not None
        callback(intermediate_result)

    start = vector.read()
    kept = [p.detach().clone() for p in vector.params]
    try:
        result = optimize.minimize(
            x0=start,
            method=method,
            bounds=_bounds(bounds, vector),
            tol=tol,
            callback=None if callback is None else after_each,
            options=options,
            **functions,
        )
        vector.write(result.x)
    except BaseException:
        with no_grad():
            for p, before in zip(vector.params, kept, strict=True):
                p.copy_(before)
        raise
    return result


class Vector:
    """Parameters as one vector of float64 on the host."""

    def __init__(self, params: list[Tensor]) -> None:
        self.params = params
        ends = np.cumsum([p.numel() for p in params]).tolist()
        self.parts = [slice(a, b) for a, b in zip([0, *ends], ends)]
        self.size = ends[-1]

    def read(self) -> Any:
        """Where the parameters are."""
        return self.joined([p.detach() for p in self.params])

    def write(self, x: Any) -> None:
        """Put the parameters there."""
        flat = from_numpy(np.array(x, np.float64))
        there = {p.device: flat.to(p.device) for p in self.params}
        with no_grad():
            for p, part in zip(self.params, self.parts, strict=True):
                p.copy_(there[p.device][part].reshape(tuple(p.shape)))

    def joined(self, tensors: Iterable[Tensor]) -> Any:
        """Tensors of the parameters' shapes as an array: one copy from each device."""
        tensors = [t.reshape(-1).to(float64) for t in tensors]
        array = np.empty(self.size)
        for where in {t.device for t in tensors}:
            pairs = [(t, part) for t, part in zip(tensors, self.parts) if t.device == where]
            values = cat([t for t, _ in pairs]).detach().cpu().numpy()
            for _, part in pairs:
                count = part.stop - part.start
                array[part], values = values[:count], values[count:]
        return array

    def split(self, x: Any) -> list[Tensor]:
        """An array as tensors like the parameters."""
        flat = from_numpy(np.array(x, np.float64))
        return [
            flat[part].reshape(tuple(p.shape)).to(dtype=p.dtype, device=p.device)
            for p, part in zip(self.params, self.parts, strict=True)
        ]


class Loss:
    """The function as SciPy calls it: of a vector, giving numbers."""

    def __init__(self, fn: Callable[..., Tensor], tree: Any, vector: Vector) -> None:
        self.fn, self.tree, self.vector = fn, tree, vector
        self.arguments = (tree,) if _takes_params(fn) else ()
        self.at: Any = None
        self.slopes: list[Tensor] = []

    def tensor(self, x: Any) -> Tensor:
        """The loss at a point."""
        self.at = None  # what the slopes there saved is written now
        self.vector.write(x)
        loss = self.fn(*self.arguments)
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"scipy_minimize(): fn must return a Tensor, got {type(loss).__name__}; without "
                ".item(), float() or .numpy() its gradient is known"
            )
        if loss.numel() != 1 or not loss.dtype.is_floating_point:
            raise ValueError(
                "scipy_minimize(): fn must return one real number, got shape "
                f"{list(loss.shape)} of {loss.dtype}; call .sum() or .mean()"
            )
        return loss

    def alone(self, x: Any) -> float:
        """The value."""
        with no_grad():
            return float(self.tensor(x))

    def with_gradient(self, x: Any) -> tuple[float, Any]:
        """The value and the gradient."""
        with enable_grad():
            loss = self.tensor(x)
            slopes = self._slopes(loss, create_graph=False)
        return loss.item(), self.vector.joined(slopes)

    def _slopes(self, loss: Tensor, create_graph: bool) -> list[Tensor]:
        if not loss.requires_grad:
            raise ValueError(
                "scipy_minimize(): the loss does not depend on params by operations of "
                "lucid_gpu; compute it from the tensors themselves, without detach() or numpy()"
            )
        grads = grad(
            loss.reshape(()), self.vector.params, create_graph=create_graph, allow_unused=True
        )
        return [zeros_like(p) if g is None else g for g, p in zip(grads, self.vector.params)]

    def hessian_product(self, x: Any, v: Any, *more: Any) -> Any:
        """The Hessian at a point times a vector: the gradient of the slope along it."""
        with enable_grad():
            if self.at is None or not np.array_equal(self.at, x):
                self.slopes = self._slopes(self.tensor(x), create_graph=True)
                self.at = np.array(x)
            along: Any = sum([(g * d).sum() for g, d in zip(self.slopes, self.vector.split(v))])
            if not along.requires_grad:  # a loss that is linear
                return np.zeros(self.vector.size)
            products = grad(along, self.vector.params, retain_graph=True, allow_unused=True)
        pairs = zip(products, self.vector.params)
        return self.vector.joined([zeros_like(p) if h is None else h for h, p in pairs])

    def hessian(self, x: Any) -> Any:
        """The Hessian, a product a row."""
        return np.stack([self.hessian_product(x, row) for row in np.eye(self.vector.size)])


def _takes_params(fn: Callable[..., Any]) -> bool:
    """Whether a function has an argument that must be given."""
    try:
        named = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in named)


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    elif hasattr(tree, "parameters"):
        tree = list(tree.parameters())
    if isinstance(tree, (list, tuple)):
        return [leaf for branch in tree for leaf in _leaves(branch)]
    return [tree]


def _varied(tree: Any) -> list[Tensor]:
    leaves = list({id(leaf): leaf for leaf in _leaves(tree)}.values())
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(
                "scipy_minimize(): params must be tensors in lists, tuples and dicts, or a Module, "
                f"got {type(leaf).__name__}"
            )
        if leaf.dtype.is_complex:
            raise TypeError(
                "scipy_minimize(): params must be real; optimize the parts of a complex one: "
                "p = view_as_complex(q)"
            )
        if not leaf.is_leaf:
            raise ValueError(
                f"scipy_minimize(): can't vary a non-leaf Tensor of shape {list(leaf.shape)}; give "
                "the leaves it is computed from, or p.detach().requires_grad_()"
            )
    varied = [leaf for leaf in leaves if leaf.requires_grad]
    if not varied:
        raise ValueError(
            "scipy_minimize(): none of params requires grad; call p.requires_grad_() on those to "
            "be varied"
        )
    return varied


def _bounds(bounds: Any, vector: Vector) -> Any:
    """Bounds as SciPy takes them: a pair an element."""
    if bounds is None or hasattr(bounds, "lb"):
        return bounds
    bounds = list(bounds)
    if len(bounds) == 2 and all(b is None or np.isscalar(b) for b in bounds):
        return [tuple(bounds)] * vector.size
    if len(bounds) != len(vector.params):
        return bounds
    pairs: list[Any] = []
    for p, pair in zip(vector.params, bounds, strict=True):
        low, high = (None, None) if pair is None else pair
        ends = zip(_spread(low, p), _spread(high, p), strict=True)
        pairs += [(a, b) for a, b in ends]
    return pairs


def _spread(bound: Any, p: Tensor) -> Any:
    if bound is None:
        return [None] * p.numel()
    if isinstance(bound, Tensor):
        bound = bound.numpy(force=True)
    return np.broadcast_to(bound, tuple(p.shape)).reshape(-1).tolist()
