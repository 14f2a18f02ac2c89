"""Which map leads into which set, beside PyTorch's."""

import numpy as np
import pytest

from tests.oracle import agree, gives, same_error

SETS = {
    "real": (lambda c: c.real, ()),
    "positive": (lambda c: c.positive, ()),
    "above": (lambda c: c.greater_than(2.0), ()),
    "below": (lambda c: c.less_than(-1.0), ()),
    "unit": (lambda c: c.unit_interval, ()),
    "interval": (lambda c: c.interval(-1.0, 3.0), ()),
    "half open": (lambda c: c.half_open_interval(0.5, 1.0), ()),
    "simplex": (lambda c: c.simplex, (3,)),
    "vector": (lambda c: c.independent(c.positive, 1), (3,)),
    "lower": (lambda c: c.lower_cholesky, (3, 3)),
    "definite": (lambda c: c.positive_definite, (3, 3)),
    "correlation": (lambda c: c.corr_cholesky, (3,)),
    "cat": (lambda c: c.cat([c.positive, c.unit_interval], 0, [1, 2]), ()),
    "stack": (lambda c: c.stack([c.positive, c.real, c.less_than(0.0)], 0), ()),
}


NO_BIJECTION = ("lower", "definite")  # from matrices that have more entries


ROUTES = [("transform_to", name) for name in SETS]
ROUTES += [("biject_to", name) for name in SETS if name not in NO_BIJECTION]


@pytest.mark.parametrize(("registry", "name"), ROUTES)
def test_maps_into_sets_are_torchs(registry, name):
    make, event = SETS[name]
    x = np.random.default_rng(1).standard_normal((3, *event))

    def into(m, x):
        constraint = make(m.distributions.constraints)
        y = getattr(m.distributions, registry)(constraint)(x)
        assert constraint.check(y).all()
        return y

    agree(into, x, device="cpu", order=1, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", NO_BIJECTION)
def test_no_bijection(name):
    same_error(lambda m: m.distributions.biject_to(SETS[name][0](m.distributions.constraints)))


def test_maps_of_ones_own():
    def told(m, _):
        d = m.distributions
        registry = d.constraint_registry.ConstraintRegistry()

        @registry.register(d.constraints.boolean)
        def _of_booleans(constraint):
            return d.SigmoidTransform()

        return [type(registry(d.constraints.boolean)).__name__]

    gives(["SigmoidTransform"], told)
