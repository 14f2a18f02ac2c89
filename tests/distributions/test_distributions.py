"""The dotted names of PyTorch's modules, and pickles that name earlier modules."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, torch_module


def test_every_module_of_torch_has_its_classes():
    d = torch_module().distributions
    modules = [m.name for m in pkgutil.iter_modules(d.__path__)]
    assert "normal" in modules
    for name in modules:
        theirs = importlib.import_module(f"torch.distributions.{name}")
        ours = importlib.import_module(f"lucid_gpu.distributions.{name}")
        assert getattr(lucid_gpu.distributions, name) is ours
        for kind in [getattr(theirs, n) for n in theirs.__all__]:
            if isinstance(kind, type) and issubclass(kind, (d.Distribution, d.Transform)):
                assert hasattr(ours, kind.__name__), (name, kind)


def test_a_module_is_imported_by_its_name_first():
    code = (
        "from lucid_gpu.distributions.normal import Normal\n"
        "import lucid_gpu.distributions.studentT as t\n"
        "import lucid_gpu.distributions\n"
        "assert lucid_gpu.distributions.Normal is Normal\n"
        "assert lucid_gpu.distributions.StudentT is t.StudentT\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("normal", "Normal"),
        ("transformed_distribution", "TransformedDistribution"),
        ("joined_transforms", "CatTransform"),
        ("vector_transforms", "StickBreakingTransform"),
    ],
)
def test_a_pickle_may_name_an_earlier_module(module, name):
    """As protocol 0 writes a class: its module and its name as text."""
    kind = pickle.loads(f"clucid_gpu.distributions.{module}\n{name}\n.".encode())
    assert kind is getattr(lucid_gpu.distributions, name)


def test_a_distribution_is_pickled():
    one = lucid_gpu.distributions.Normal(lucid_gpu.tensor([1.0, 2.0]), 0.5)
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is type(one) and again.mean.tolist() == [1, 2]


@pytest.mark.parametrize("value", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("parameter", ["logits", "probs"])
def test_a_binomial_has_its_gradient_where_both_outcomes_are_as_likely(value, parameter, device):
    def log_prob(m, x):
        likely = {parameter: x if parameter == "logits" else x + 0.5}
        counted = m.full(x.shape, value, dtype=x.dtype, device=x.device)
        return m.distributions.Binomial(3, **likely, validate_args=False).log_prob(counted)

    agree(log_prob, np.array([0.0, 0.25, -0.25]), device=device, order=1)
