"""Schedules beside PyTorch's: rates of every step, closed forms, state, warnings, errors."""

import json
import warnings

import pytest

import lucid_gpu
from tests.oracle import same_error, torch_module


def optimizer_of(m, kind="SGD", **settings):
    parameters = [m.nn.Parameter(m.ones(1)) for _ in range(2)]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.7}]
    return getattr(m.optim, kind)(groups, **{"lr": 0.5, **settings})


def half(t):
    return 0.5**t


def slow(t):
    return 1 - t / 40


def sequential(s, o, **settings):
    parts = [s.ConstantLR(o, total_iters=2), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 5)]
    return s.SequentialLR(o, parts, milestones=[3, 8])


def chained(s, o, **settings):
    return s.ChainedScheduler(
        [s.ConstantLR(o, total_iters=4), s.ExponentialLR(o, 0.9)], optimizer=o
    )


def nested(s, o, **settings):
    both = s.ChainedScheduler([s.ConstantLR(o, total_iters=2), s.ExponentialLR(o, 0.9)])
    return s.SequentialLR(o, [both, s.LinearLR(o, total_iters=3)], milestones=[4])


def made(m, row, optimizer):
    what, settings = row
    schedulers = m.optim.lr_scheduler
    if callable(what):
        return what(schedulers, optimizer)
    return getattr(schedulers, what)(optimizer, **settings)


TABLE = [
    ("LambdaLR", {"lr_lambda": half}),
    ("LambdaLR", {"lr_lambda": [half, slow]}),
    ("MultiplicativeLR", {"lr_lambda": [slow, half]}),
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 4, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.5}),
    ("CosineAnnealingLR", {"T_max": 6}),
    ("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.1}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 25}),
    (
        "OneCycleLR",
        {
            "max_lr": [1.0, 2.0],
            "epochs": 5,
            "steps_per_epoch": 5,
            "three_phase": True,
            "anneal_strategy": "linear",
        },
    ),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.9, "step_size_up": 4}),
    (
        "CyclicLR",
        {
            "base_lr": [0.1, 0.2],
            "max_lr": 0.9,
            "step_size_up": 3,
            "step_size_down": 5,
            "mode": "triangular2",
        },
    ),
    (
        "CyclicLR",
        {"base_lr": 0.1, "max_lr": 1, "step_size_up": 4, "mode": "exp_range", "gamma": 0.9},
    ),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1, "step_size_up": 4, "scale_fn": half}),
    (sequential, {}),
    (chained, {}),
    (nested, {}),
]
NAMES = [row[0] if isinstance(row[0], str) else row[0].__name__ for row in TABLE]


def rates(m, optimizer, scheduler, steps):
    found = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        group = optimizer.param_groups[0]
        found.append([*scheduler.get_last_lr(), group.get("momentum", 0), *group.get("betas", ())])
    return found


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_rates_agree_with_torch(row, kind):
    found = []
    for m in (lucid_gpu, torch_module()):
        optimizer = optimizer_of(m, kind)
        scheduler = made(m, row, optimizer)
        first = scheduler.get_last_lr()
        state = scheduler.state_dict()
        keys = set(state) - {"verbose"}
        found.append((first, rates(m, optimizer, scheduler, 22), keys))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    for mine, other in zip(found[0][1], found[1][1], strict=True):
        assert mine == pytest.approx(other, rel=1e-9, abs=1e-12)
    assert found[0][2] == found[1][2]


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_state_goes_round(row):
    optimizer = optimizer_of(lucid_gpu)
    scheduler = made(lucid_gpu, row, optimizer)
    rates(lucid_gpu, optimizer, scheduler, 7)
    state, of_optimizer = scheduler.state_dict(), optimizer.state_dict()
    other = optimizer_of(lucid_gpu)
    again = made(lucid_gpu, row, other)
    again.load_state_dict(state)
    other.load_state_dict(of_optimizer)
    assert rates(lucid_gpu, other, again, 7) == rates(lucid_gpu, optimizer, scheduler, 7)


@pytest.mark.parametrize("row", [row for row in TABLE if isinstance(row[0], str)][:17])
def test_any_epoch_agrees_with_torch(row):
    found = []
    for m in (lucid_gpu, torch_module()):
        optimizer = optimizer_of(m)
        scheduler = made(m, row, optimizer)
        optimizer.step()
        some = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for epoch in (3, 11, 5, 0):
                scheduler.step(epoch)
                some += scheduler.get_last_lr()
        found.append(some)
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-12)


METRICS = [5, 4, 4, 4.5, 3.99999, 4, 4, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, float("nan"), 2, 2, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {"patience": 1},
        {"mode": "max", "patience": 2, "factor": 0.5, "min_lr": [0.2, 0.01]},
        {"patience": 1, "cooldown": 3, "threshold_mode": "abs", "threshold": 0.5},
        {"mode": "max", "patience": 0, "threshold_mode": "abs", "threshold": 0.2, "min_lr": 0.1},
    ],
)
def test_plateau_agrees_with_torch(settings):
    found = []
    for m in (lucid_gpu, torch_module()):
        optimizer = optimizer_of(m)
        scheduler = m.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
        some = []
        for i, metric in enumerate(METRICS):
            scheduler.step(m.tensor(metric) if i % 2 else metric)
            some += [*scheduler.get_last_lr(), scheduler.num_bad_epochs, scheduler.in_cooldown]
        found.append((some, set(scheduler.state_dict())))
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][1] == found[1][1]
    json.dumps(scheduler.state_dict())


def test_a_rate_that_is_a_tensor_is_changed_in_place():
    rate = lucid_gpu.tensor(0.5)
    optimizer = lucid_gpu.optim.SGD([lucid_gpu.nn.Parameter(lucid_gpu.ones(1))], lr=rate)
    scheduler = lucid_gpu.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert rate.item() == 0.25 and optimizer.param_groups[0]["lr"] is rate
    assert scheduler.get_last_lr()[0].item() == 0.25


def said(m, scenario):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scenario(m)
    return [(w.category, str(w.message)[:120]) for w in caught]


def too_early(m):
    m.optim.lr_scheduler.ExponentialLR(optimizer_of(m), 0.5).step()


def after_steps_before(m):
    optimizer = optimizer_of(m)
    optimizer.step()
    m.optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()


def in_order(m):
    optimizer = optimizer_of(m)
    scheduler = m.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()


def overridden(m):
    optimizer = optimizer_of(m)
    scheduler = m.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step = lambda: None
    scheduler.step()


def asked(m):
    m.optim.lr_scheduler.ExponentialLR(optimizer_of(m), 0.5).get_lr()


@pytest.mark.parametrize("scenario", [too_early, after_steps_before, in_order, overridden, asked])
def test_warnings_are_torchs(scenario):
    assert said(lucid_gpu, scenario) == said(torch_module(), scenario)


def scheduler_error(name, *args, **settings):
    return lambda m: getattr(m.optim.lr_scheduler, name)(optimizer_of(m), *args, **settings)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.optim.lr_scheduler.StepLR(m.ones(1), 3), "Tensor is not an Optimizer"),
        (scheduler_error("StepLR", 3, last_epoch=4), "param 'initial_lr' is not specified in"),
        (scheduler_error("LambdaLR", [half]), "Expected 2 lr_lambdas, but got 1"),
        (scheduler_error("LambdaLR", 0.5), "lr_lambda should be a function, but got float"),
        (scheduler_error("MultiplicativeLR", 3), "lr_lambda should be a function, but got int"),
        (scheduler_error("ConstantLR", 2), "factor expected to be between 0 and 1."),
        (scheduler_error("LinearLR", 0), "expected to be greater than 0 and less or equal to 1."),
        (scheduler_error("LinearLR", 1, 2), "Ending multiplicative factor expected"),
        (scheduler_error("OneCycleLR", 1.0), "either total_steps OR (epochs AND steps_per_epoch)"),
        (scheduler_error("OneCycleLR", 1.0, 0), "Expected positive integer total_steps, but got 0"),
        (scheduler_error("OneCycleLR", [1.0], 5), "max_lr must have the same length as"),
        (
            scheduler_error("OneCycleLR", 1.0, 5, pct_start=2),
            "between 0 and 1 pct_start, but got 2",
        ),
        (scheduler_error("OneCycleLR", 1.0, 5, anneal_strategy="x"), "instead got x"),
        (scheduler_error("CyclicLR", 0.1, 1, mode="x"), "mode is invalid and scale_fn is None"),
        (
            lambda m: m.optim.lr_scheduler.CyclicLR(optimizer_of(m, "Adagrad"), 0.1, 1),
            "optimizer must support momentum or beta1",
        ),
        (scheduler_error("CosineAnnealingWarmRestarts", 0), "positive integer T_0, but got 0"),
        (scheduler_error("CosineAnnealingWarmRestarts", 2, 0), "integer T_mult >= 1, but got 0"),
        (scheduler_error("ReduceLROnPlateau", factor=1.0), "Factor should be < 1.0."),
        (scheduler_error("ReduceLROnPlateau", "x"), "mode x is unknown!"),
        (scheduler_error("ReduceLROnPlateau", min_lr=[1]), "expected 2 min_lrs, got 1"),
        (scheduler_error("SequentialLR", [], []), "at least one scheduler, but got no scheduler."),
        (lambda m: m.optim.lr_scheduler.ChainedScheduler([]), "at least one scheduler to be"),
        (
            lambda m: m.optim.lr_scheduler.ChainedScheduler(
                [m.optim.lr_scheduler.ReduceLROnPlateau(optimizer_of(m))]
            ),
            "does not support `ReduceLROnPlateau`",
        ),
        (
            lambda m: m.optim.lr_scheduler.SequentialLR(
                optimizer_of(m), [m.optim.lr_scheduler.ConstantLR(optimizer_of(m))], []
            ),
            "expects all schedulers to belong to the same optimizer",
        ),
        (
            lambda m: (
                lambda o: m.optim.lr_scheduler.SequentialLR(
                    o, [m.optim.lr_scheduler.ConstantLR(o)], [3]
                )
            )(optimizer_of(m)),
            "number of milestones to be equal to 1",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


@pytest.mark.parametrize(
    "make",
    [
        lambda s, o: s.LambdaLR(o, lambda epoch: 1 / 0),
        lambda s, o: s.CyclicLR(o, 0.1, 0.2, scale_fn=lambda x: 1 / 0),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=10, base_momentum=[0.1, 0.2]),
        lambda s, o: s.CosineAnnealingWarmRestarts(optimizer=o, T_0=0),
        lambda s, o: lucid_gpu.optim.swa_utils.SWALR(o, 0.1, last_epoch=1),
    ],
)
@pytest.mark.parametrize("tensor", [False, True])
def test_a_schedule_that_cannot_be_made_changes_nothing(make, tensor):
    lr = lucid_gpu.tensor(0.5) if tensor else 0.5
    optimizer = lucid_gpu.optim.SGD([lucid_gpu.ones(2, requires_grad=True)], lr=lr, momentum=0.9)
    before = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    with pytest.raises((KeyError, ZeroDivisionError, ValueError)):
        make(lucid_gpu.optim.lr_scheduler, optimizer)
    after = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    assert after == before
    assert after["lr"] is lr
    assert float(lr) == 0.5


def test_a_sequence_that_cannot_be_made_changes_nothing():
    schedules = lucid_gpu.optim.lr_scheduler
    optimizer = lucid_gpu.optim.SGD([lucid_gpu.ones(2, requires_grad=True)], lr=0.5)
    factors = iter([0.5])
    first = schedules.LambdaLR(optimizer, lambda epoch: next(factors))
    with pytest.raises(StopIteration):
        schedules.SequentialLR(optimizer, [first], [])
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_the_warning_of_epochs_has_its_name():
    optimizer = optimizer_of(lucid_gpu)
    scheduler = lucid_gpu.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    with pytest.warns(UserWarning) as caught:
        scheduler.step(1)
    words = lucid_gpu.optim.lr_scheduler.EPOCH_DEPRECATION_WARNING
    assert words in [str(w.message) for w in caught]
