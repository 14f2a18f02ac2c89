"""GradScaler beside PyTorch's: scales, skipped steps, clipping, state, errors."""

import copy
import math

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from tests.oracle import same_error, torch_module

SIZES = [(3,), (40, 5), (2, 0)]
# What the gradient of the first element is multiplied by in each step.
FACTORS = [1.0, math.inf, 1.0, 1.0, 1.0, math.nan, -math.inf, 1.0, 1.0, 1.0]


def run(m, device, clip):
    """Ten steps, some of which overflow."""
    weights = [m.ones(size, device=device, requires_grad=True) for size in SIZES]
    optimizer = m.optim.SGD(weights, lr=0.1, momentum=0.5)
    scaler = m.amp.GradScaler(device, init_scale=8.0, growth_interval=2, growth_factor=3.0)
    found = []
    for factor in FACTORS:
        optimizer.zero_grad()
        loss = sum((w * w).sum() for w in weights) + weights[0][0] * factor
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            m.nn.utils.clip_grad_norm_(weights, 0.5)
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.get_scale(), scaler._get_growth_tracker()))
    return found, [w.detach().cpu().numpy() for w in weights], scaler.state_dict()


@pytest.mark.parametrize("clip", [False, True])
def test_steps_agree_with_torch(clip, device):
    expected, theirs, their_state = run(torch_module(), "cpu", clip)
    found, ours, state = run(lucid_gpu, device, clip)
    assert found == expected and state == their_state
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_all_gradients_are_one_kernel(device):
    weights = [lucid_gpu.ones(n, device=device, requires_grad=True) for n in (3, 70_000, 500)]
    optimizer = lucid_gpu.optim.SGD(weights)
    for w in weights:
        w.grad = lucid_gpu.full_like(w, 6.0)
    weights[1].grad[69_999] = math.inf
    scaler = lucid_gpu.amp.GradScaler(device, init_scale=2.0)
    scaler.scale(lucid_gpu.ones(1, device=device)).array
    for w in weights:
        w.grad.array
    with profiler.record() as log:
        scaler.unscale_(optimizer)
    assert len([k for k in log.kernels if "unscale" in k.name]) == (device != "cpu")
    assert weights[0].grad.tolist() == [3, 3, 3] and weights[1].grad[0] == 3
    scaler.step(optimizer)
    assert weights[0].tolist() == [1, 1, 1]  # skipped


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_types_and_layouts(dtype, device):
    weight = lucid_gpu.ones(3, 40, dtype=getattr(lucid_gpu, dtype), device=device)
    weight = weight.t().requires_grad_()
    weight.grad = lucid_gpu.full((3, 40), 4.0, dtype=weight.dtype, device=device).t()
    scaler = lucid_gpu.amp.GradScaler(device, init_scale=2.0)
    scaler.scale(weight.detach().sum())
    scaler.unscale_(lucid_gpu.optim.SGD([weight]))
    assert set(weight.grad.flatten().tolist()) == {2}


def test_large_finite_gradients_are_no_overflow(device):
    """Their sum is one."""
    weight = lucid_gpu.ones(8, device=device, requires_grad=True)
    weight.grad = lucid_gpu.full((8,), 3e38, device=device)
    scaler = lucid_gpu.amp.GradScaler(device, init_scale=2.0)
    scaler.scale(weight.detach().sum())
    scaler.step(optimizer := lucid_gpu.optim.SGD([weight], lr=0.0))
    scaler.update()
    assert scaler.get_scale() == 2.0 and optimizer is not None


def test_state_goes_round(device):
    first = lucid_gpu.amp.GradScaler(device, init_scale=16.0, growth_interval=3)
    weight = lucid_gpu.ones(2, device=device, requires_grad=True)
    optimizer = lucid_gpu.optim.SGD([weight])
    first.scale(weight.sum()).backward()
    first.step(optimizer)
    first.update()
    second = lucid_gpu.amp.GradScaler(device)
    second.load_state_dict(first.state_dict())
    third = copy.deepcopy(first)
    assert second.state_dict() == third.state_dict() == first.state_dict()
    assert third.scale(weight.sum()).item() == first.scale(weight.sum()).item()


def test_several_outputs():
    scaler = lucid_gpu.amp.GradScaler("cpu", init_scale=4.0)
    one = lucid_gpu.ones(())
    assert [t.item() for t in scaler.scale([one, one * 2])] == [4, 8]
    assert type(scaler.scale((one, [one]))) is tuple


def test_disabled():
    scaler = lucid_gpu.amp.GradScaler("cpu", enabled=False)
    weight = lucid_gpu.ones(1, requires_grad=True)
    loss = weight.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    loss.backward()
    scaler.step(lucid_gpu.optim.SGD([weight], lr=1.0))
    scaler.update()
    assert weight.item() == 0


def prepared(m, dtype="float32"):
    weight = m.ones(2, dtype=getattr(m, dtype), requires_grad=True)
    optimizer = m.optim.SGD([weight])
    scaler = m.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    return scaler, optimizer


def twice(m):
    scaler, optimizer = prepared(m)
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def stepped_twice(m):
    scaler, optimizer = prepared(m)
    scaler.step(optimizer)
    scaler.step(optimizer)


def too_late(m):
    scaler, optimizer = prepared(m)
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (twice, "unscale_() has already been called on this optimizer since the last update()."),
        (stepped_twice, "step() has already been called since the last update()."),
        (too_late, "unscale_() is being called after step()."),
        (lambda m: prepared(m)[0].update(), "No inf checks were recorded prior to update."),
        (lambda m: m.amp.GradScaler("cpu").update(), "Attempted update but _scale is None."),
        (lambda m: m.amp.GradScaler("cpu", growth_factor=1), "growth factor must be > 1.0."),
        (lambda m: m.amp.GradScaler("cpu", backoff_factor=1), "backoff factor must be < 1.0."),
        (lambda m: m.amp.GradScaler("cpu").load_state_dict({}), "source state dict is empty"),
        (lambda m: m.amp.GradScaler("cpu").scale(3), "outputs must be a Tensor or an iterable"),
        (
            lambda m: (lambda s, o: s.unscale_(o))(*prepared(m, "float16")),
            "Attempting to unscale FP16 gradients.",
        ),
        (
            lambda m: (lambda s, o: s.step(o, closure=lambda: None))(*prepared(m)),
            "Closure use is not currently supported if GradScaler is enabled.",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("factor", [1.0, math.inf])
def test_an_optimizer_that_scales_by_itself_is_given_the_scale(clip, factor, device):
    def seen(m, where):
        class Own(m.optim.SGD):
            _step_supports_amp_scaling = True

            def step(self):
                scale = self.grad_scale
                self.told = None if scale is None else scale.item(), self.found_inf.item()

        weight = m.ones(2, device=where, requires_grad=True)
        optimizer = Own([weight], lr=0.1)
        scaler = m.amp.GradScaler(where, init_scale=4.0)
        scaler.scale((weight * m.tensor([1.0, factor], device=where)).sum()).backward()
        if clip:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return optimizer.told, weight.grad.tolist(), scaler.get_scale()

    assert seen(lucid_gpu, device) == seen(torch_module(), "cpu")


def test_an_optimizer_may_ask_for_the_scaler():
    class Own(lucid_gpu.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, *, grad_scaler=None):
            self.asked = grad_scaler

    weight = lucid_gpu.ones(2, requires_grad=True)
    optimizer, scaler = Own([weight], lr=0.1), lucid_gpu.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.warns(FutureWarning, match="GradScaler is going to stop passing itself"):
        scaler.step(optimizer)
    assert optimizer.asked is scaler
