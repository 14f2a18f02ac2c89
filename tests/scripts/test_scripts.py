"""Training scripts as people write them for PyTorch run unchanged, and learn the same.

The scripts beside this file import torch. Each runs twice from the same weights, in a file that
PyTorch wrote: as it stands, and with the word torch exchanged in its lines of imports. What
``main`` gives, the loss of each step and what is measured at the end, must agree.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.oracle import torch_module

FOLDER = Path(__file__).parent


# Relative. Float32 rounds to 6e-8; sums in another order differ by a few of these, and a dozen
# steps of a smooth loss keep it so: 4e-7 is the most that any of three seeds showed.
ROUNDING = 3e-6
HINGES = 1e-4  # a margin, or an action, decided by a last place changes one example's gradient
BFLOAT16 = 1e-2  # rounds to 4e-3
DIFFERENCES = 3e-5  # a loss that is the small rest of large terms
DOUBLE = 1e-10  # rounds to 1e-16; LBFGS multiplies it
# LBFGS without a line search divides by differences of gradients: 5e-7 at its first step grows
# tenfold in five.
AMPLIFIED = 2e-3

TOLERANCE = {
    "actor_critic": HINGES,
    "char_gpt": ROUNDING,
    "cnn_classifier": ROUNDING,
    "dcgan": ROUNDING,
    "gat": ROUNDING,
    "gcn": ROUNDING,
    "gru_tagger": ROUNDING,
    "mixed_precision": BFLOAT16,
    "mixture_of_experts": ROUNDING,
    "mobile_net": ROUNDING,
    "radiance_field": ROUNDING,
    "regression": ROUNDING,
    "resnet": ROUNDING,
    "siamese": HINGES,
    "style_transfer": AMPLIFIED,
    "super_resolution": ROUNDING,
    "time_sequence": DOUBLE,
    "translation": ROUNDING,
    "vae": ROUNDING,
    "wgan_gp": DIFFERENCES,
    "word_language_model": ROUNDING,
}

# Over the stand-in g++ takes 0.3 s and more a kernel; these have the most of them, 9 to 35 s each.
MANY_KERNELS = {
    "actor_critic", "char_gpt", "mixed_precision", "mixture_of_experts", "mobile_net",
    "radiance_field", "resnet", "siamese", "translation", "wgan_gp",
}  # fmt: skip


def exchanged(source: str) -> str:
    """The script with its imports of torch turned into imports of lucid_gpu."""
    source = re.sub(r"^( *)import torch$", r"\1import lucid_gpu as torch", source, flags=re.M)
    return re.sub(r"^( *)(import|from) torch\b", r"\1\2 lucid_gpu", source, flags=re.M)


def script(name: str, ours: bool) -> ModuleType:
    path = FOLDER / f"{name}.py"
    source = path.read_text("utf-8")
    module = ModuleType(name)
    exec(compile(exchanged(source) if ours else source, path, "exec"), module.__dict__)
    return module


@pytest.fixture
def one_thread() -> Any:
    """PyTorch: its threads only wait for each other in layers of this size."""
    torch = torch_module()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, about itself
@pytest.mark.parametrize("name", sorted(TOLERANCE))
def test_learns_the_same(
    name: str, device: str, one_thread: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name in MANY_KERNELS and request.config.getoption("--standin"):
        pytest.skip("too many kernels for g++; runs on the CPU and on a GPU")
    torch, start = one_thread, str(tmp_path / "start.pt")
    theirs, ours = script(name, ours=False), script(name, ours=True)
    torch.manual_seed(0)
    torch.save(theirs.build_model().state_dict(), start)
    expected = theirs.main(["--init", start, "--device", "cpu"])
    got = ours.main(["--init", start, "--device", device])
    assert len(expected) > 10
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[name], atol=1e-7)


def test_every_script_is_run() -> None:
    names = {p.stem for p in FOLDER.glob("*.py")} - {Path(__file__).stem}
    assert names == set(TOLERANCE)
