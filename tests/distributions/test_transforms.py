"""Maps of vectors and matrices beside PyTorch's."""

import pytest

from tests.distributions import tables
from tests.oracle import agree, gives, same_error, torch_module

floats, fractions = tables.floats, tables.fractions


MAPS = {
    "stick": (lambda d: d.StickBreakingTransform(), floats(2, 3)),
    "lower": (lambda d: d.LowerCholeskyTransform(), floats(2, 3, 3)),
    "definite": (lambda d: d.PositiveDefiniteTransform(), floats(3, 3)),
    "correlation": (lambda d: d.CorrCholeskyTransform(), floats(2, 6)),
    "reshape": (lambda d: d.ReshapeTransform((2, 3), (6,)), floats(4, 2, 3)),
    "cat": (
        lambda d: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, -2.0)], -1, [2, 1]),
        floats(2, 3),
    ),
    "stack": (
        lambda d: d.StackTransform([d.ExpTransform(), d.SigmoidTransform()], 1, cache_size=1),
        floats(3, 2),
    ),
    "distribution": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)), floats(3)),
    "chain": (
        lambda d: d.ComposeTransform(
            [
                d.AffineTransform(0.0, 2.0),
                d.StickBreakingTransform(),
                d.ReshapeTransform((4,), (2, 2)),
            ]
        ),
        floats(2, 3),
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_agree_with_torch(name, device):
    make, x = MAPS[name]

    def images(m, x):
        transform = make(m.distributions)
        y = transform(x)
        back = transform.inv(y)
        try:
            return y, back, transform.log_abs_det_jacobian(x, y)
        except NotImplementedError:
            return y, back

    agree(images, x, device=device, order=1, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", MAPS)
def test_domains_and_shapes_are_torchs(name):
    make, x = MAPS[name]
    torch = torch_module()
    theirs = make(torch.distributions)
    y = theirs(torch.from_numpy(x))

    def told(m, _):
        one = make(m.distributions)
        shapes = [one.forward_shape(m.Size(x.shape)), one.inverse_shape(m.Size(y.shape))]
        sets = [(s.event_dim, s.is_discrete) for s in (one.domain, one.codomain)]
        inside = one.codomain.check(m.from_numpy(y.numpy())).all().item()
        return [[list(s) for s in shapes], sets, one.bijective, inside]

    gives(told(torch, None), told)


def test_shapes_of_maps_with_tensors_of_settings():
    def told(m, _):
        d = m.distributions
        maps = [
            d.AffineTransform(m.zeros(3), m.ones(2, 1)),
            d.AffineTransform(m.zeros(3), 2.0, event_dim=1),
            d.PowerTransform(m.ones(3)),
            d.IndependentTransform(d.PowerTransform(m.ones(3)), 1),
        ]
        drawn = [d.TransformedDistribution(d.Exponential(m.ones(1)), one) for one in maps]
        shapes = [(one.forward_shape((1,)), one.inverse_shape((2, 1))) for one in maps]
        shapes += [(one.batch_shape, one.event_shape, one.sample((5,)).shape) for one in drawn]
        return [[list(shape) for shape in row] for row in shapes]

    gives(told(torch_module(), None), told)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, d: d.biject_to(d.constraints.boolean), "Cannot transform _Boolean constraints"),
        (lambda m, d: d.biject_to.register(3, id), "either a Constraint subclass or instance"),
        (lambda m, d: d.ReshapeTransform((2,), (3,)), "different numbers of elements"),
        (lambda m, d: d.ReshapeTransform((2,), (2,)).forward_shape((3,)), "Shape mismatch: expec"),
        (lambda m, d: d.CorrCholeskyTransform().forward_shape((4,)), "not a flattened lower-diag"),
        (lambda m, d: d.CorrCholeskyTransform().inverse_shape((4, 3)), "Input is not square"),
        (lambda m, d: d.StickBreakingTransform().forward_shape(()), "Too few dimensions on input"),
        (lambda m, d: d.CatTransform([3]), "must be Transform instances"),
        (lambda m, d: d.StackTransform([d.ExpTransform()])(m.zeros(2)), "must equal"),
        (lambda m, d: d.AbsTransform().sign, ""),
        (lambda m, d: d.ComposeTransform([d.SoftmaxTransform()]).sign, ""),
        (lambda m, d: d.LKJCholesky(1), "greater than or equal to 2. Found dim=1."),
        (lambda m, d: d.Wishart(m.tensor(1.0), m.eye(3)), "greater than ndim - 1 = 2."),
        (lambda m, d: d.Wishart(m.tensor(4.0)), "Exactly one of covariance_matrix or"),
        (
            lambda m, d: d.LowRankMultivariateNormal(m.zeros(3), m.ones(2, 1), m.ones(3)),
            "cov_factor must be a batch of matrices with shape 3 x m",
        ),
        (
            lambda m, d: d.LowRankMultivariateNormal(m.zeros(3), m.ones(3, 1), m.ones(2)),
            "cov_diag must be a batch of vectors with shape",
        ),
        (
            lambda m, d: d.LowRankMultivariateNormal(m.zeros(2, 3), m.ones(4, 3, 1), m.ones(3)),
            "Incompatible batch shapes: loc",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m, m.distributions), words)
