"""A step that fails has not happened: states are as they were."""

import copy

import pytest

import lucid_gpu
from lucid_gpu.optim import optimizer as base

CLASSES = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop",
           "Rprop", "ASGD"]  # fmt: skip


def _made(name, **settings):
    p = lucid_gpu.nn.Parameter(lucid_gpu.arange(6.0).reshape(2, 3))
    optimizer = getattr(lucid_gpu.optim, name)([p], lr=0.1, **settings)
    p.grad = lucid_gpu.ones(2, 3)
    return p, optimizer


def _refusing(*_, **__):
    raise MemoryError("out of memory")


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", CLASSES)
def test_a_failed_step_is_not_counted(name, steps, monkeypatch):
    settings = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    p, optimizer = _made(name, **settings)
    q, twin = _made(name, **settings)
    for _ in range(steps):
        optimizer.step()
        twin.step()
    before = copy.deepcopy(optimizer.state_dict())
    with monkeypatch.context() as patch:
        patch.setattr(base, "update_in_place", _refusing)
        with pytest.raises(MemoryError):
            optimizer.step()
    after = optimizer.state_dict()
    assert after["state"].keys() == before["state"].keys() or not steps
    for number, values in before["state"].items():
        assert all(lucid_gpu.equal(v, after["state"][number][k]) for k, v in values.items())
    optimizer.step()
    twin.step()
    assert lucid_gpu.equal(p, q)


def test_members_that_were_updated_keep_their_states(monkeypatch):
    old, new = (lucid_gpu.nn.Parameter(lucid_gpu.ones(2)) for _ in range(2))
    optimizer = lucid_gpu.optim.Adam([old, new])
    old.grad = lucid_gpu.ones(2)
    optimizer.step()
    new.grad = lucid_gpu.ones(2)
    update, calls = base.update_in_place, []

    def once(*args, **settings):
        calls.append(1)
        if len(calls) > 1:
            raise MemoryError("out of memory")
        update(*args, **settings)

    monkeypatch.setattr(base, "update_in_place", once)
    with pytest.raises(MemoryError):
        optimizer.step()
    assert optimizer.state[old]["step"] == 2 and "step" not in optimizer.state[new]
