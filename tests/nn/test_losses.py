"""Losses against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.autograd import gradcheck
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
CLASSES = np.array([0, 3, 2, 3, 1])
WEIGHT = np.abs(normal(4))


def weight_of(m, device):
    return m.tensor(WEIGHT).to("cpu" if m is torch_module() else device)


# loss, its target
LOSSES = {
    "MSELoss": (lambda m, d, r: m.nn.MSELoss(reduction=r), normal((5, 4))),
    "L1Loss": (lambda m, d, r: m.nn.L1Loss(reduction=r), normal((5, 4))),
    "NLLLoss": (
        lambda m, d, r: m.nn.NLLLoss(weight_of(m, d), ignore_index=2, reduction=r),
        CLASSES,
    ),
    "CrossEntropyLoss": (
        lambda m, d, r: m.nn.CrossEntropyLoss(
            weight_of(m, d), ignore_index=1, reduction=r, label_smoothing=0.1
        ),
        CLASSES,
    ),
    "BCEWithLogitsLoss": (
        lambda m, d, r: m.nn.BCEWithLogitsLoss(reduction=r),
        np.random.default_rng(1).random((5, 4)),
    ),
    "BCEWithLogitsLoss, weights": (
        lambda m, d, r: m.nn.BCEWithLogitsLoss(
            weight_of(m, d), reduction=r, pos_weight=weight_of(m, d) * 2
        ),
        np.random.default_rng(1).random((5, 4)),
    ),
}

P = np.random.default_rng(2).random
SIGNS = np.sign(normal((5, 4)))
LABELS = np.array([[0, 2, -1, 1], [3, -1, 0, 0], [-1, 0, 0, 0], [0, 1, 2, 3], [1, 1, -1, 0]])

# loss, settings besides the reduction, inputs
MORE = [
    ("SmoothL1Loss", {"beta": 0.6}, (normal((5, 4)), normal((5, 4)))),
    ("SmoothL1Loss", {"beta": 0.0}, (normal((5, 4)), normal((5, 4)))),
    ("HuberLoss", {"delta": 0.7}, (normal((5, 4)), normal((5, 4)))),
    ("KLDivLoss", {}, (normal((5, 4)), np.round(P((5, 4)), 1))),
    ("KLDivLoss", {"log_target": True}, (normal((5, 4)), normal((5, 4)))),
    ("BCELoss", {}, (P((5, 4)), P((5, 4)))),
    ("GaussianNLLLoss", {"full": True}, (normal((5, 4)), normal((5, 4)), P((5, 4)) * 2)),
    ("GaussianNLLLoss", {"eps": 0.5}, (normal((5, 4)), normal((5, 4)), P((5, 1)))),
    ("GaussianNLLLoss", {}, (normal((5, 4)), normal((5, 4)), P(5))),
    ("PoissonNLLLoss", {"full": True}, (normal((5, 4)), P((5, 4)) * 4)),
    ("PoissonNLLLoss", {"log_input": False}, (P((5, 4)), P((5, 4)) * 4)),
    ("HingeEmbeddingLoss", {"margin": 0.8}, (normal((5, 4)), SIGNS)),
    ("MarginRankingLoss", {"margin": 0.3}, (normal((5, 4)), normal((5, 4)), SIGNS)),
    ("MultiMarginLoss", {"margin": 0.8}, (normal((5, 4)), CLASSES)),
    ("MultiMarginLoss", {"p": 2}, (normal((5, 4)), CLASSES)),
    ("MultiMarginLoss", {}, (normal(4), np.array(2))),
    ("MultiLabelMarginLoss", {}, (normal((5, 4)), LABELS)),
    ("MultiLabelMarginLoss", {}, (normal(4), LABELS[0])),
    ("MultiLabelSoftMarginLoss", {}, (normal((5, 4)), P((5, 4)))),
    ("SoftMarginLoss", {}, (normal((5, 4)), SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.1}, (normal((5, 4)), normal((5, 4)), SIGNS[:, 0])),
    ("CosineEmbeddingLoss", {}, (normal(4), normal(4), np.array(SIGNS[0, 0]))),
    ("TripletMarginLoss", {"margin": 0.7, "p": 3.0}, [normal((5, 4)) for _ in range(3)]),
    ("TripletMarginLoss", {"swap": True}, [normal((5, 4)) for _ in range(3)]),
    ("TripletMarginWithDistanceLoss", {"swap": True}, [normal((5, 4)) for _ in range(3)]),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize(("name", "settings", "inputs"), MORE)
def test_the_others_agree_with_torch(name, settings, inputs, device):
    once = device != "cpu" or "Label" in name or "MultiMargin" in name  # no derivative of torch's

    def run(m, *inputs):
        fixed = [t.detach() if name.startswith(("Hinge", "Soft", "Mar")) else t for t in inputs[1:]]
        return [
            getattr(m.nn, name)(**settings, reduction=reduction)(inputs[0], *fixed)
            for reduction in (("mean", "sum", "none") if device == "cpu" else ("mean",))
        ]

    agree(run, *inputs, device=device, order=1 if once else 2)


@pytest.mark.parametrize("name", sorted({row[0] for row in MORE} | {"NLLLoss", "MSELoss"}))
def test_signature_and_repr_are_torchs(name):
    import inspect

    ours, theirs = (getattr(m.nn, name) for m in (lucid_gpu, torch_module()))
    assert repr(ours()) == repr(theirs())
    mine, other = (inspect.signature(c).parameters for c in (ours, theirs))
    assert [(k, p.default, p.kind) for k, p in mine.items()] == [
        (k, p.default, p.kind) for k, p in other.items()
    ]


def test_weights(device):
    def run(m, x, p, w, classes):
        F, w = m.nn.functional, w.detach()
        return (
            F.binary_cross_entropy(p, p.detach() ** 2, w[0]),
            F.multi_margin_loss(x, classes, weight=w[0]),
            F.multilabel_soft_margin_loss(x, p.detach(), w[0]),
            F.mse_loss(x, p, weight=w),
            F.l1_loss(x, p, weight=w, reduction="sum"),
            F.huber_loss(x, p, weight=w, reduction="none"),
            F.huber_loss(x, p, weight=w),
            F.kl_div(x, p, reduction="batchmean"),
            F.gaussian_nll_loss(x, p, 0.5),
            F.gaussian_nll_loss(x.long(), p, 0.5),
        )

    inputs = normal((5, 4)), P((5, 4)), P((5, 4)) + 0.1, CLASSES
    agree(run, *inputs, device=device, order=1)


def test_margins_that_are_met_exactly(device):
    def run(m, x, classes, listed):
        F = m.nn.functional
        return F.multi_margin_loss(x, classes), F.multilabel_margin_loss(x, listed)

    x, listed = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([[1, -1, 0], [1, 2, -1]])
    agree(run, x, np.array([1, 1]), listed, device=device, order=1)


def test_saturated_probabilities(device):
    x, t = np.array([0.0, 1.0, 0.0, 1.0, 1e-14]), np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    agree(lambda m, x, t: m.nn.BCELoss()(x, t.detach()), x, t, device=device, order=1)
    batched = lucid_gpu.vmap(nn.functional.binary_cross_entropy)
    x, t = (lucid_gpu.tensor(a, device=device).reshape(5, 1) for a in (x, t))
    expected = nn.functional.binary_cross_entropy(x, t, reduction="none")
    assert lucid_gpu.equal(batched(x, t), expected[:, 0])


CTC = normal((7, 3, 5))
SEQUENCES = np.array([[1, 2, 2, 4], [3, 1, 1, 1], [2, 1, 1, 1]])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("times", "lengths"), [((7, 6, 5), (4, 3, 1)), ((7, 0, 2), (2, 0, 1))])
def test_ctc(times, lengths, reduction, device):
    def run(m, x, t, flat):
        loss = m.nn.CTCLoss(reduction=reduction)
        sizes = m.tensor(times), m.tensor(lengths)
        y = x.log_softmax(2)
        first = loss(y, t, *sizes), loss(y, flat, *sizes)
        return (*first, loss(y[:, 0], t[0, :2], m.tensor(7), m.tensor(2)))

    flat = np.concatenate([row[:n] for row, n in zip(SEQUENCES, lengths)])
    agree(run, CTC, SEQUENCES, flat, device=device, order=1)


def test_ctc_without_alignment(device):
    def run(m, x, t):
        loss = m.nn.CTCLoss(blank=4, reduction="none", zero_infinity=True)
        return loss(x.log_softmax(2), t, (7, 2, 3), (3, 2, 3))

    agree(run, CTC, SEQUENCES % 4, device=device, order=1)
    agree(
        lambda m, x: m.nn.CTCLoss()(x, m.tensor([[1, 1]]), (2,), (2,)),
        CTC[:3, :1],
        device=device,
        order=1,
    )
    scores = lucid_gpu.tensor(CTC, device=device).log_softmax(2)
    assert nn.CTCLoss()(scores, lucid_gpu.tensor(SEQUENCES), (3, 3, 3), (4, 1, 1)).item() == np.inf


def test_ctc_gradient():
    def loss(x):
        sizes = (4, 3), (2, 1)
        return nn.CTCLoss()(x.log_softmax(2), lucid_gpu.tensor([[1, 1], [2, 0]]), *sizes)

    x = lucid_gpu.tensor(normal((4, 2, 3)), requires_grad=True)
    assert gradcheck(loss, (x,))
    (g,) = lucid_gpu.autograd.grad(loss(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for ctc_loss_backward is not implemented"):
        g.sum().backward()


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (1, 4))])
def test_distances(shapes, device):
    a, b = (normal(s) for s in shapes)
    agree(
        lambda m, a, b: (
            m.nn.CosineSimilarity()(a, b),
            m.nn.functional.cosine_similarity(a, b, -2),
            m.nn.PairwiseDistance(1.5, keepdim=True)(a, b),
            m.nn.functional.pairwise_distance(a, b),
        ),
        a, b, device=device, order=1,
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_agrees_with_torch(name, reduction, device):
    make, target = LOSSES[name]
    agree(lambda m, x, t: make(m, device, reduction)(x, t), normal((5, 4)), target, device=device)


@pytest.mark.parametrize("flags", [(None, False), (False, None), (True, None), (True, True)])
def test_older_flags_mean_what_they_did(flags, device):
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        agree(
            lambda m, x, t: (
                m.nn.MSELoss(*flags)(x, t),
                m.nn.functional.l1_loss(x, t, *flags),
            ),
            normal((2, 3)),
            normal((2, 3)),
            device=device,
        )


def test_weights_are_buffers():
    loss = nn.CrossEntropyLoss(weight=lucid_gpu.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    assert repr(loss) == "CrossEntropyLoss()"


@pytest.mark.parametrize(
    ("name", "bound"),
    [("huber_loss", {}), ("huber_loss", {"delta": np.inf}), ("smooth_l1_loss", {"beta": 0.5})],
    ids=str,
)
def test_differences_that_are_not_finite(name, bound, device):
    x = np.array([np.inf, -np.inf, np.nan, 1.0, 3.0, 0.5, np.inf])
    y = np.array([0.0, 0.0, 0.0, np.nan, 1.0, 0.25, np.inf])
    agree(
        lambda m, x, y: getattr(m.nn.functional, name)(x, y, reduction="none", **bound),
        x, y, device=device, order=1,
    )  # fmt: skip


def test_extreme_scores_stay_finite(device):
    x = lucid_gpu.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = nn.functional.binary_cross_entropy_with_logits(x, lucid_gpu.tensor([[0.0, 1.0]]))
    loss.backward()
    assert loss.item() == 1000
    assert x.grad.tolist() == [[0.5, -0.5]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda F, x: F.kl_div(x, x), "reduction: 'mean' divides the total loss by both the batch"),
        (lambda F, x: F.huber_loss(x, x[:1]), "Using a target size"),
        (lambda F, x: F.smooth_l1_loss(x, x[:1]), "Using a target size"),
        (lambda F, x: F.mse_loss(x, x, reduction="elementwise_mean"), "is deprecated. Please use"),
        (lambda F, x: F.soft_margin_loss(x, x, False), "please use reduction='sum' instead"),
    ],
)
def test_warnings_are_torchs(call, words):
    for m in (lucid_gpu, torch_module()):
        with pytest.warns(UserWarning, match=words):
            call(m.nn.functional, m.ones(3, 4))


def test_older_name():
    with pytest.warns(FutureWarning, match="`NLLLoss2d` has been deprecated. Please use `NLLLoss`"):
        assert isinstance(nn.NLLLoss2d(), nn.NLLLoss)


def test_broadcasting_targets_warn():
    with pytest.warns(UserWarning, match="Using a target size .* different to the input size"):
        nn.functional.mse_loss(lucid_gpu.zeros(2, 1), lucid_gpu.zeros(2))


def F(m):
    return m.nn.functional


def X(m):
    return m.full((3, 4), 0.5)


def T(m):
    return m.tensor([0, 1, 3])


def ctc(m, lengths=(3,), sizes=(2,), blank=0, shape=(1, 2)):
    targets = m.ones(shape, dtype=m.int64)
    return F(m).ctc_loss(m.zeros(3, 1, 4), targets, m.tensor(lengths), m.tensor(sizes), blank)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: m.nn.functional.mse_loss(m.zeros(1), m.zeros(1), reduction="all"),
            "all is not a valid value for reduction",
        ),
        (
            lambda m: m.nn.BCEWithLogitsLoss()(m.zeros(2), m.zeros(3)),
            "must be the same as input size",
        ),
        (lambda m: F(m).binary_cross_entropy(X(m) + 1, X(m)), "elements of input should be betw"),
        (lambda m: F(m).binary_cross_entropy(X(m), X(m) + 1), "elements of target should be bet"),
        (lambda m: F(m).binary_cross_entropy(X(m), X(m)[:1]), "is deprecated. Please ensure the"),
        (lambda m: F(m).binary_cross_entropy(X(m), X(m).double()), "Found dtype"),
        (lambda m: F(m).smooth_l1_loss(X(m), X(m), beta=-1), "does not support negative values f"),
        (lambda m: m.nn.HuberLoss(delta=0)(X(m), X(m)), "does not support non-positive values"),
        (lambda m: F(m).huber_loss(X(m), X(m), weight=X(m)[0]), "Weights and input must have th"),
        (lambda m: F(m).gaussian_nll_loss(X(m), X(m), -X(m)), "var has negative entry/entries"),
        (lambda m: F(m).gaussian_nll_loss(X(m), X(m), -1.0), "var has negative entry/entries"),
        (lambda m: F(m).gaussian_nll_loss(X(m), X(m), X(m)[:2]), "var is of incorrect size"),
        (lambda m: F(m).gaussian_nll_loss(X(m), X(m), X(m), reduction="x"), "x is not valid"),
        (lambda m: F(m).margin_ranking_loss(X(m), X(m), X(m)[0]), "should have same dimension"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m), p=3), "only p == 1 and p == 2 supported"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m)[:2]), "Expected target size [3], but got"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m) + 4), "target out of range"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m).float()), "expected scalar type Long but"),
        (lambda m: F(m).multi_margin_loss(X(m)[None], T(m)), "Expected non-empty vector or matr"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m), weight=X(m)[0, :3]), "inconsistent weight"),
        (lambda m: F(m).multi_margin_loss(X(m), T(m), weight=X(m)[0].half()), "scalar type"),
        (lambda m: F(m).nll_loss(X(m), T(m), weight=X(m)[0].half()), "expected scalar type"),
        (lambda m: F(m).cross_entropy(X(m), T(m), weight=X(m)[0].half()), "expected scalar type"),
        (lambda m: F(m).cross_entropy(X(m), T(m).float()), "dtype to be Long or Byte, but got"),
        (lambda m: F(m).cross_entropy(X(m), T(m)[:, None]), "0D or 1D target tensor expected"),
        (lambda m: m.nn.HuberLoss(delta="1"), "delta must be a float or int, got: <class 'str'>"),
        (lambda m: F(m).huber_loss(X(m), X(m), delta=1j), "must be float, not complex"),
        (lambda m: F(m).multilabel_margin_loss(X(m), T(m)), "inconsistent target size: [3] for i"),
        (lambda m: F(m).multilabel_margin_loss(X(m), X(m).long() + 7), "'target' is out of range"),
        (lambda m: m.nn.MultiMarginLoss(weight=X(m)), "expected weight to be None or 1D tensor"),
        (lambda m: F(m).cosine_embedding_loss(X(m), X(m), X(m)), "multi-target not supported"),
        (lambda m: F(m).cosine_embedding_loss(X(m)[0], X(m)[0], X(m)[0]), "tensor expects 2D inp"),
        (lambda m: F(m).triplet_margin_loss(X(m), X(m), X(m)[0]), "to have the same number of di"),
        (lambda m: F(m).triplet_margin_loss(X(m), X(m), X(m), -1), "must be greater than 0, got"),
        (lambda m: m.nn.TripletMarginLoss(margin=0), "TripletMarginLoss: expected margin to be g"),
        (lambda m: F(m).cosine_similarity(X(m), X(m), 2), "Dimension out of range"),
        (lambda m: F(m).cosine_similarity(T(m), T(m), 0), "expected common dtype to be floating"),
        (lambda m: F(m).cross_entropy(X(m), T(m)[:2]), "Expected input batch_size (3) to match t"),
        (lambda m: F(m).cross_entropy(X(m), T(m)[0]), "to match target batch_size (0)."),
        (lambda m: F(m).cross_entropy(X(m), X(m)[:2]), "to match target batch_size (2)."),
        (lambda m: F(m).cross_entropy(X(m), T(m)[:, None]), "multi-target"),
        (lambda m: F(m).nll_loss(X(m), X(m)), "0D or 1D target tensor expected, multi-target"),
        (lambda m: F(m).cross_entropy(X(m), X(m).long()), "Expected floating point type for targ"),
        (lambda m: F(m).cross_entropy(X(m)[0], T(m)[:2]), "target size"),
        (lambda m: ctc(m, lengths=(3.0,)), "input_lengths must be integral"),
        (lambda m: ctc(m, shape=(1, 1, 2)), "Expected 1 to 2 dimensions"),
        (lambda m: ctc(m, shape=(3, 2)), "to have size 1 at dimension 0, but got"),
        (lambda m: ctc(m, shape=(3,)), "to have size 2 at dimension 0, but got size"),
        (lambda m: F(m).cross_entropy(X(m), X(m), ignore_index=1), "ignore_index is not support"),
        (lambda m: F(m).kl_div(X(m), X(m), reduction="m"), "m is not a valid value for reduction"),
        (lambda m: ctc(m, lengths=(3, 3)), "input_lengths must be of size batch_size"),
        (lambda m: ctc(m, sizes=(2, 1)), "target_lengths must be of size batch_size"),
        (lambda m: ctc(m, lengths=(9,)), "Expected input_lengths to have value at most 3"),
        (lambda m: ctc(m, sizes=(3,)), "Expected tensor to have size at least 3 at dimension 1"),
        (lambda m: ctc(m, blank=4), "blank must be in label range"),
        (lambda m: m.nn.CrossEntropyLoss(X(m), T(m)), "called, as in MSELoss()(input, target)"),
        (lambda m: m.nn.L1Loss(X(m), X(m)), "Boolean value of Tensor with more than one value is"),
        (lambda m: F(m).cross_entropy(X(m).long(), T(m)), "scores are floats: input.float()"),
        (lambda m: F(m).cross_entropy(X(m), T(m).float()), "class numbers are integers"),
        (lambda m: m.nn.MSELoss(1, 2, 3, 4), "MSELoss.__init__()"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_second_derivatives_where_the_parabola_ends(name):
    x = np.array([-1.0, -0.5, 0.5, 1.0, 2.0])
    agree(lambda m, t: getattr(m.nn.functional, name)(t, t.detach() * 0), x, device="cpu")


def test_the_dtype_is_the_inputs():
    for m in (lucid_gpu, torch_module()):
        loss = F(m).binary_cross_entropy(X(m), X(m), weight=X(m).double(), reduction="none")
        assert loss.dtype is m.float32
