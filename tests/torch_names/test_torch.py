"""Scripts and packages that say ``import torch``, run unedited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lucid_gpu

PACKAGE = {
    "model.py": """
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import init
from torch.nn.modules.utils import _pair
from torch.utils.checkpoint import checkpoint


@torch.jit.script
def gate(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        init.zeros_(self.layer.bias)

    def forward(self, x):
        if torch.jit.is_scripting():
            raise AssertionError
        return F.log_softmax(gate(self.layer(x)), -1)
""",
    "__init__.py": "from .model import Net\n",
    "__main__.py": "import sys\nfrom . import Net\nprint('main of', __package__, sys.argv[1:])\n",
}
SCRIPT = """
import sys
import torch
import torch.optim as optim
import torch.optim.lr_scheduler
from torch.autograd import Function
from torch.utils.data import DataLoader, TensorDataset
from net import Net
import lucid_gpu

assert torch.nn is lucid_gpu.nn and sys.modules["torch.nn"] is lucid_gpu.nn
assert lucid_gpu.nn.__spec__.name == lucid_gpu.nn.__name__ == "lucid_gpu.nn"
assert torch.__version__.startswith("2.13.0+lucid") and lucid_gpu.__version__ != torch.__version__
assert torch.__version__ >= "2.1" and not torch.__version__ < "2.9" and torch.__version__ < "2.20"
assert tuple(int(v) for v in torch.__version__.split(".")[:2]) == (2, 13)
import torch.version
assert torch.version.__version__ == torch.__version__ and torch.version.hip is None
assert isinstance(torch.__version__, torch.torch_version.TorchVersion)
assert lucid_gpu.version.__version__ == lucid_gpu.__version__
from torch.autograd.gradcheck import GradcheckError
import torch.autograd.gradcheck
assert torch.autograd.gradcheck(torch.sin, torch.ones(2, dtype=torch.double, requires_grad=True))
x = torch.ones(2, 3, dtype=torch.float64)
assert repr(x[0]) == "tensor([1., 1., 1.], dtype=torch.float64)"
assert str(x.dtype) == "torch.float64" and x.type() == "torch.DoubleTensor"
assert type(x).__module__ == "torch" and torch.nn.Parameter.__module__ == "torch.nn.parameter"
assert repr(x.shape) == "torch.Size([2, 3])" and repr(x.layout) == "torch.strided"
assert x.type("torch.FloatTensor").dtype is getattr(torch, repr(torch.float32).split(".")[1])
try:
    import torch.no_such_module
except ModuleNotFoundError as error:
    assert error.name == "torch.no_such_module"
else:
    raise AssertionError
net = torch.compile(Net())
optimizer = optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(8, 4), torch.zeros(8).long())
for x, y in DataLoader(data, 4):
    loss = torch.nn.functional.nll_loss(net(x), y)
    loss.backward()
    optimizer.step()
print("trained", __name__, sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "net" / name).write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """Variables under which ``python -S`` finds this package and what is installed but torch."""
    site = tmp_path / "site"
    site.mkdir()
    for path in Path(np.__file__).parents[1].iterdir():
        if not path.name.startswith(("torch", "functorch")):
            (site / path.name).symlink_to(path)
    ours = Path(lucid_gpu.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ours), str(site)])}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_script_runs_unedited(folder: Path) -> None:
    ran = run(folder, "-m", "lucid_gpu.torch", "train.py", "--epochs", "3")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "trained __main__ ['--epochs', '3']\n"


def test_a_module_runs_unedited(folder: Path) -> None:
    ran = run(folder, "-m", "lucid_gpu.torch", "-m", "net", "x")
    assert (ran.returncode, ran.stdout) == (0, "main of net ['x']\n"), ran.stderr


def test_without_a_script_it_says_how(folder: Path) -> None:
    ran = run(folder, "-m", "lucid_gpu.torch")
    assert ran.returncode == 2 and "python -m lucid_gpu.torch train.py" in ran.stdout
    ran = run(folder, "-m", "lucid_gpu.torch", "trian.py")
    assert ran.returncode == 2 and "no file 'trian.py'" in ran.stderr


def test_a_program_that_has_another_torch_is_refused(folder: Path) -> None:
    text = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
    text += "import lucid_gpu\nlucid_gpu.install_as_torch()\n"
    ran = run(folder, "-c", text)
    assert "PyTorch has been imported in this process" in ran.stderr.splitlines()[-1]


def test_twice_is_once(folder: Path) -> None:
    text = "import lucid_gpu\nlucid_gpu.install_as_torch()\nlucid_gpu.install_as_torch()\n"
    text += "import sys, torch\n"
    text += "print(sum(type(f).__module__ == 'lucid_gpu.torch' for f in sys.meta_path))"
    assert run(folder, "-c", text).stdout == "1\n"


VERSION = """
import importlib.metadata as metadata, sys, lucid_gpu

before = [d.version for d in metadata.distributions(name="torch")]
lucid_gpu.install_as_torch()
found = [d.version for d in metadata.distributions(name="torch")]
assert found == (before or ["2.13.0"]), found
assert metadata.version("Torch") == found[0] and metadata.metadata("torch")["Name"] == "torch"
assert [d.version for d in metadata.distributions() if d.metadata["Name"] == "torch"] == found
assert metadata.packages_distributions()["torch"] == ["torch"]
assert metadata.version("numpy") and list(metadata.distributions(path=[sys.argv[1]])) == []
for name in ("torchvision_of_nobody", "functorch"):
    try:
        raise AssertionError(metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
import torch
assert torch.__version__ >= "2.13"
print(len(before))
"""


def test_packages_find_its_version_where_pytorch_is_not_installed(
    folder: Path, without_torch: dict[str, str]
) -> None:
    command = [sys.executable, "-S", "-c", VERSION, str(folder)]
    ran = subprocess.run(command, env=without_torch, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr


def test_nothing_changes_where_pytorch_is_installed(folder: Path) -> None:
    pytest.importorskip("torch")
    ran = run(folder, "-c", VERSION, str(folder / "net"))
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr


def test_importing_lucid_gpu_installs_nothing() -> None:
    text = "import sys, lucid_gpu\nassert 'torch' not in sys.modules\n"
    text += "assert not any(type(f).__module__ == 'lucid_gpu.torch' for f in sys.meta_path)"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


@pytest.mark.parametrize("name", [*lucid_gpu._TORCH_NAMES, "install_as_torch"])
def test_names_are_attributes(name: str) -> None:
    assert getattr(lucid_gpu, name) is not None


def test_import_star_gives_what_pytorch_s_gives() -> None:
    pytest.importorskip("torch")
    theirs: dict[str, object] = {}
    ours: dict[str, object] = {}
    exec("from torch import *", theirs)
    exec("from lucid_gpu import *", ours)
    assert ours["sin"] is lucid_gpu.sin and "nn" not in ours
    public = {n for n in theirs if n[0] != "_"}
    assert {n for n in public if hasattr(lucid_gpu, n)} <= ours.keys()
