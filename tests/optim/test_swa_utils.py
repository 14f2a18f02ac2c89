"""Averages of models beside PyTorch's."""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import same_error, torch_module

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def model(m):
    one = m.nn.Sequential(m.nn.Linear(4, 3), m.nn.BatchNorm1d(3))
    with m.no_grad():
        for i, p in enumerate(one.parameters()):
            p.copy_(m.linspace(-1, 1 + i, p.numel()).reshape(p.shape))
    return one


def averaged(m, device, **settings):
    one = model(m).to(device)
    utils = m.optim.swa_utils
    mean = utils.AveragedModel(one, **{k: make(utils) for k, make in settings.items()})
    x = m.tensor(X).to(device)
    for step in range(4):
        one(x * (step + 1))
        with m.no_grad():
            for p in one.parameters():
                p.add_(p * 0.5)
        mean.update_parameters(one)
    state = {k: v.cpu().numpy().copy() for k, v in mean.state_dict().items()}
    return state, mean(x).detach().cpu().numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_buffers": lambda u: True},
        {"avg_fn": lambda u: u.get_ema_avg_fn(0.9)},
        {"multi_avg_fn": lambda u: u.get_ema_multi_avg_fn(0.9)},
        {"avg_fn": lambda u: u.get_swa_avg_fn()},
    ],
)
def test_averages_agree_with_torch(settings, device):
    theirs, expected = averaged(torch_module(), "cpu", **settings)
    ours, found = averaged(lucid_gpu, device, **settings)
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_anew():
    def statistics(m):
        one = model(m).eval()
        batches = [m.tensor(X[:2]), [m.tensor(X[2:4] * 3), 1], m.tensor(X[4:])]
        m.optim.swa_utils.update_bn(batches, one)
        return [*one[1].running_mean.tolist(), *one[1].running_var.tolist(), one.training]

    assert statistics(lucid_gpu) == pytest.approx(statistics(torch_module()), rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"anneal_strategy": "linear"}, {"anneal_epochs": 0}])
def test_schedule_agrees_with_torch(settings):
    def rates(m):
        parameters = [m.nn.Parameter(m.ones(1)) for _ in range(2)]
        groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.7}]
        optimizer, found = m.optim.SGD(groups, lr=0.5), []
        scheduler = m.optim.swa_utils.SWALR(optimizer, [0.05, 0.1], **settings)
        for _ in range(14):
            optimizer.step()
            scheduler.step()
            found += scheduler.get_last_lr()
        return found

    assert rates(lucid_gpu) == pytest.approx(rates(torch_module()), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda u, o: u.get_ema_avg_fn(2), "Invalid decay value 2 provided."),
        (lambda u, o: u.SWALR(o, 0.1, anneal_strategy="x"), "instead got x"),
        (lambda u, o: u.SWALR(o, 0.1, anneal_epochs=-1), "equal or greater than 0, got -1"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(
        lambda m: call(m.optim.swa_utils, m.optim.SGD([m.nn.Parameter(m.ones(1))])),
        words,
    )
