"""The base of all distributions: shapes, parameters, validation; exponential families."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd import grad
from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.constraints import Constraint
from lucid_gpu.distributions.utils import broadcast_all, lazy_property
from lucid_gpu.storage import Size
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Distribution", "ExponentialFamily"]

Shape = Sequence[int]


class Distribution:
    """A distribution over events, or a batch of them.

    A subclass lists its parameters in `arg_constraints`, gives `support`, and defines `rsample` or
    `sample`, and of ``_log_prob``, ``_cdf``, ``_icdf`` and `entropy` what it has. `log_prob` and
    `cdf` look at their argument first.

    Parameters
    ----------
    batch_shape : sequence of int
        The shape that the parameters broadcast to, event dimensions aside.
    event_shape : sequence of int
        The shape of one value: ``()`` for numbers.
    validate_args : bool, optional
        Whether to look at parameters and values; on unless Python runs with ``-O``.

    Raises
    ------
    ValueError
        For parameters outside their sets, if validated.
    """

    arg_constraints: Any
    has_rsample: bool = False
    has_enumerate_support: bool = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Validate, or not, where ``validate_args`` is None.

        Raises
        ------
        ValueError
            For anything but True and False.
        """
        if value not in (True, False):
            raise ValueError(f"expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Shape = (),
        event_shape: Shape = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _take(self, validate_args: bool | None, **parameters: Any) -> None:
        """Make parameters attributes, of one shape, which is that of the batch."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _validate_parameters(self) -> None:
        try:
            known = self.arg_constraints
        except AttributeError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = "
                "{}` or initialize the distribution with `validate_args=False` to turn off "
                "validation.",
                stacklevel=4,
            )
            return
        for name, constraint in known.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (lazy and name not in self.__dict__):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    # -- shapes -----------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        """The shape that the parameters broadcast to, event dimensions aside."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event."""
        return self._event_shape

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """The object that `expand` of a subclass fills; for one without an ``expand``, an error."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return self.__new__(type(self))

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """The same distribution with a larger batch: its parameters are views.

        Parameters
        ----------
        batch_shape : sequence of int
            One that the present one broadcasts to.
        """
        new = copy.copy(self) if _instance is None else _instance
        new.__dict__.update(self.__dict__)
        for name, constraint in self.arg_constraints.items():
            if name in self.__dict__:
                value, count = self.__dict__[name], _event_dim(constraint)
                event = value.shape[value.ndim - count :]
                new.__dict__[name] = value.expand((*batch_shape, *event))
        new._batch_shape = Size(batch_shape)
        return new

    def _extended_shape(self, sample_shape: Shape = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    # -- what subclasses say ----------------------------------------------------------------

    @property
    def support(self) -> Constraint:
        """The set of values; NotImplementedError if a subclass gives none."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of shape ``batch_shape + event_shape``; nan or inf where there is none.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value, of shape ``batch_shape + event_shape``.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element, of shape ``batch_shape + event_shape``.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The root of the variance, of shape ``batch_shape + event_shape``."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Values without gradients, of shape ``sample_shape + batch_shape + event_shape``."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """``sample((n,))``, of shape ``(n,) + batch_shape + event_shape``; an older name."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """Values whose gradients with respect to the parameters are those of a fixed noise.

        Of shape ``sample_shape + batch_shape + event_shape``.

        Raises
        ------
        NotImplementedError
            If `has_rsample` is False.
        """
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of values.

        Parameters
        ----------
        value : Tensor, shape (*sample_shape, *batch_shape, *event_shape)
            Or one that broadcasts to it.

        Returns
        -------
        Tensor, shape (*sample_shape, *batch_shape)

        Raises
        ------
        ValueError
            For values of another shape or outside `support`, if validated.
        """
        if self._validate_args:
            self._validate_sample(value)
        return self._log_prob(value)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of no more than ``value``; shapes and errors as in `log_prob`.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        if self._validate_args:
            self._validate_sample(value)
        return self._cdf(value)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`: quantiles, of the shape of ``value`` broadcast with the batch.

        Parameters
        ----------
        value : Tensor
            Probabilities, which are not looked at.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        raise NotImplementedError

    def _log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def _cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, in nats, of shape ``batch_shape``.

        Raises
        ------
        NotImplementedError
            If there is no closed form.
        """
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy, of shape ``batch_shape``."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All ``n`` values, of shape ``(n,) + batch_shape + event_shape``.

        Parameters
        ----------
        expand : bool
            Repeat them over the batch, of which each dimension is 1 otherwise.

        Raises
        ------
        NotImplementedError
            If they cannot be listed: `has_enumerate_support` is False, or the parameters differ
            in how many there are.
        """
        raise NotImplementedError

    # -- validation -------------------------------------------------------------------------

    def _validate_sample(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, expected = tuple(value.shape), (*self._batch_shape, *self._event_shape)
        events = shape[len(shape) - len(self._event_shape) :]
        if events != tuple(self._event_shape):
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        for i, j in zip(reversed(shape), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{value.shape} vs {Size(expected)}."
                )
        if not self.support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {shape}) to be within "
                f"the support ({self.support!r}) of the distribution {self!r}, but found invalid "
                f"values:\n{value}"
            )

    def __repr__(self) -> str:
        parameters = {k: self.__dict__[k] for k in self.arg_constraints if k in self.__dict__}
        texts = [f"{k}: {_text(v)}" for k, v in parameters.items()]
        return f"{type(self).__name__}({', '.join(texts)})"


def _text(parameter: Tensor) -> str:
    if parameter.numel() != 1:
        return str(parameter.shape)
    return str(parameter if parameter.ndim else parameter.item())


def _event_dim(constraint: Constraint) -> int:
    """How many dimensions of a parameter belong to one event."""
    return 0 if constraint is constraints.dependent else constraint.event_dim


class ExponentialFamily(Distribution):
    """``p(x) = exp(t(x) . theta - F(theta) + k(x))``.

    ``_natural_params`` are ``theta``, ``_log_normalizer`` is ``F``, ``_mean_carrier_measure`` the
    mean of ``k``. Entropy follows from those (Nielsen and Nock, Entropies and cross-entropies of
    exponential families, 2010): ``F(theta) - theta . grad F(theta) - E k``.
    """

    _mean_carrier_measure: float = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        parameters = [p.detach()._mark() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        gradients: Any = grad(normalizer.sum(), parameters, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(parameters, gradients, strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
