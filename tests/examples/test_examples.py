"""The examples in this process, with few steps: what they print, leave, and go on from."""

import gc
import importlib
import json
import re
import signal
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lucid_gpu
import lucid_gpu.numpy
from lucid_gpu.autograd import gradcheck
from lucid_gpu.cuda import pending
from lucid_gpu.testing import check_function
from tests.examples.checkpoints import contents
from tests.slow import slow_but

pytest.importorskip("sklearn", reason="pip install '.[train]'")
pytest.importorskip("matplotlib", reason="pip install '.[train]'")
pytest.importorskip("tqdm", reason="pip install '.[train]'")

FOLDER = Path(__file__).parents[2] / "examples"

# example: flags of a small run, constants made small, its picture, the checkpoint that is its last
SMALL = {
    "char_gpt": (
        ["--steps", "3", "--sample", "5"],
        {"VALIDATE_EVERY": 1, "WINDOWS": 2, "LAYERS": 1, "LENGTH": 16},
        "curves.png",
        2,
    ),
    "vae": (["--epochs", "3"], {"WIDTH": 16}, "digits.png", 2),
    "diffusion": (
        ["--epochs", "3"],
        {"WIDTH": 4, "EMBEDDING": 8, "BATCH": 512, "DRAWN": 10, "DRAWING_STEPS": 2},
        "digits.png",
        1,
    ),
    "fourier": (
        ["--epochs", "3"],
        {"WIDTH": 4, "LEARNED": 20, "TESTED": 10, "LAYERS": 1, "BATCH": 10},
        "fields.png",
        1,
    ),
    "recurrence": (["--epochs", "2"], {"WIDTH": 4, "BATCH": 512}, "curves.png", 1),
    "wasserstein": (
        ["--steps", "4"],
        {"WIDTH": 8, "BATCH": 16, "CHECKPOINT_EVERY": 2, "TESTED": 50},
        "points.png",
        1,
    ),
    "gcn": (["--epochs", "4"], {}, "graph.png", 2),
    "gaussian_process": (
        ["--steps", "4"],
        {"CHECKPOINT_EVERY": 2, "PATIENTS": 40},
        "fit.png",
        1,
    ),
    "nile": (["--steps", "4"], {"CHECKPOINT_EVERY": 2}, "nile.png", 1),
    "lotka_volterra": (
        ["--steps", "4"],
        {"CHECKPOINT_EVERY": 2, "LAST": 1902, "TOLERANCE": 1e-2},
        "hares.png",
        1,
    ),
    "heat": (
        ["--steps", "4", "--time", "7", "--segment", "3"],
        {"CHECKPOINT_EVERY": 2, "SIZE": 16},
        "plate.png",
        1,
    ),
    "registration": (
        ["--steps", "3"],
        {"SIZE": 12, "CALLS": 3},
        "images.png",
        1,
    ),
    "quantum_dot": (
        ["--steps", "4"],
        {"CHECKPOINT_EVERY": 2, "WALKERS": 40, "MOVES": 2},
        "dot.png",
        1,
    ),
    "burgers": (
        ["--steps", "2", "--lbfgs", "6"],
        {"CHECKPOINT_EVERY": 2, "INSIDE": 50},
        "solution.png",
        3,
    ),
}


def load(name, monkeypatch):
    """An example's module; importing it takes Ctrl-C, which pytest wants back."""
    monkeypatch.syspath_prepend(FOLDER)
    before = signal.getsignal(signal.SIGINT)
    try:
        return importlib.import_module(name)
    finally:
        signal.signal(signal.SIGINT, before)


class Example:
    """One example, made small."""

    def __init__(self, name, monkeypatch):
        self.flags, constants, self.picture, self.last = SMALL[name]
        self.module, self.training = load(name, monkeypatch), load("training", monkeypatch)
        for constant, value in constants.items():
            monkeypatch.setattr(self.module, constant, value)
        self.make = next(
            kind
            for kind in vars(self.module).values()
            if isinstance(kind, type) and issubclass(kind, self.training.Run)
        )

    def begin(self, folder):
        args = self.module.flags.parse_args(
            [*self.flags, "--alone", "--device", "cpu", "--out", str(folder)]
        )
        self.training.prepare(args)
        return self.make(args)

    def command(self, folder, *flags, device="cpu"):
        """As on the command line; returns the exit status."""
        line = ["x", *self.flags, "--alone", "--device", device, "--out", str(folder), *flags]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", line)
            self.training.main(self.module.flags, self.make)
        return ended.value.code


@pytest.fixture(params=SMALL)
def example(request, monkeypatch):
    return Example(request.param, monkeypatch)


def test_a_run_and_what_it_leaves(example, tmp_path, capsys, device):
    assert example.command(tmp_path, device=device) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"results are in {tmp_path}" in said
    assert re.fullmatch(r"[a-z0-9., ]+: [0-9.e+-]+", said[-1])
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"checkpoint.pt", "curves.json", example.picture}
    assert (tmp_path / example.picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("example", slow_but(SMALL, "char_gpt", "burgers"), indirect=True)
def test_resuming_gives_the_numbers_of_an_unbroken_run(example, tmp_path):
    example.training.train(example.begin(tmp_path / "whole"))
    broken = example.begin(tmp_path / "parts")
    save, saved = broken.save, []

    def save_and_break():
        save()
        saved.append(broken.done)
        if len(saved) == example.last:
            raise KeyboardInterrupt

    broken.save = save_and_break
    with pytest.raises(KeyboardInterrupt):
        example.training.train(broken)
    assert 0 < broken.done < broken.total
    again = example.begin(tmp_path / "parts")
    again.resume()
    assert again.done == saved[-1]
    example.training.train(again)
    whole, parts = [contents(tmp_path / f / "checkpoint.pt") for f in ("whole", "parts")]
    assert whole == parts


def test_what_cannot_be_resumed_from(example, tmp_path, capsys):
    file = tmp_path / "checkpoint.pt"

    def refusal():
        assert example.command(tmp_path, "--resume") == 1
        return capsys.readouterr().err

    assert "there is no" in refusal()
    example.begin(tmp_path).save()
    with zipfile.ZipFile(file) as archive:
        last = max(archive.infolist(), key=lambda record: record.file_size)
    data = bytearray(file.read_bytes())
    name, extra = struct.unpack_from("<HH", data, last.header_offset + 26)
    data[last.header_offset + 30 + name + extra] ^= 4
    file.write_bytes(data)
    assert "does not match its checksum" in refusal()
    lucid_gpu.save({"done": 1}, file)
    assert "is no checkpoint of this script" in refusal()


def test_a_gpu_that_is_not_there(example, tmp_path, capsys):
    if lucid_gpu.cuda.is_available():
        return
    assert example.command(tmp_path, device="cuda") == 1
    said = capsys.readouterr().err
    assert "no cuda device can be used" in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", slow_but(SMALL, "vae", "heat"))
def test_as_a_script(name):
    """From anywhere, and without lucid_gpu's dependencies imported for it."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--help"]
    said = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
        env={"PYTHONPATH": str(FOLDER.parent)},
        cwd="/",
    ).stdout
    assert f"usage: {name}.py" in said and "--resume" in said and f"runs/{name}" in said


# example: flags of a short run; char_gpt and burgers take a minute and more with torch
WITH_TORCH = {
    "diffusion": ["--epochs", "1"],
    "fourier": ["--epochs", "1"],
    "gcn": ["--epochs", "3"],
    "recurrence": ["--epochs", "1"],
    "train_digits": ["--epochs", "2"],
    "vae": ["--epochs", "2"],
    "wasserstein": ["--steps", "2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_TORCH)
def test_the_same_script_with_torch(name, tmp_path):
    pytest.importorskip("torch", reason="pip install '.[oracle]'")
    command = [sys.executable, str(FOLDER / f"{name}.py"), *WITH_TORCH[name], "--device", "cpu"]
    said = subprocess.run(
        [*command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=290,
        env={"PYTHONPATH": str(FOLDER.parent), "OMP_NUM_THREADS": "1"},
    ).stdout.splitlines()
    theirs, ours = said[-2:]
    assert theirs.startswith("torch, ")
    assert theirs.rpartition(": ")[0].startswith(f"torch, {ours[:8]}")
    curves = json.loads((tmp_path / "torch" / "curves.json").read_text())
    assert curves.keys() == json.loads((tmp_path / "curves.json").read_text()).keys()
    script = (tmp_path / "torch" / f"{name}.py").read_text()
    assert "import torch" in script and "lucid_gpu" not in script
    assert "as torch" not in script


def test_each_is_read_in_one_sitting():
    shared = {"training", "digits"}
    for script in FOLDER.glob("*.py"):
        if script.stem not in shared:
            assert len(script.read_text().splitlines()) < 150, script.name


def test_other_steps_than_those_of_the_checkpoint(monkeypatch, tmp_path, capsys):
    gpt = Example("char_gpt", monkeypatch)
    gpt.begin(tmp_path).save()
    assert gpt.command(tmp_path, "--resume", "--steps", "9") == 1
    assert "was trained with --steps 3; say --steps 3 again" in capsys.readouterr().err


def test_gpt_does_not_look_ahead(monkeypatch):
    gpt = Example("char_gpt", monkeypatch).module
    model = gpt.GPT().eval()
    text = gpt.encode("def f(x): return", "cpu")
    with lucid_gpu.no_grad():
        whole, part = (model(t[None]).numpy() for t in (text, text[:8]))
    np.testing.assert_allclose(whole[:, :8], part, atol=1e-5)
    assert gpt.decode(text) == "def f(x): return"
    assert gpt.decode(gpt.encode("é\r", "cpu")) == "??"


def test_the_recurrence_and_its_gradient(monkeypatch, device):
    recurrence = load("recurrence", monkeypatch)
    real = {"dtype": lucid_gpu.float64, "device": device}
    a, x = lucid_gpu.rand(5, 3, 2, **real), lucid_gpu.randn(5, 3, 2, **real)
    assert check_function(recurrence.Scan, a.requires_grad_(), x.requires_grad_()).passed
    ours, wanted = recurrence.Scan.apply(a, x), recurrence.plain(a, x)
    np.testing.assert_allclose(ours.detach().cpu(), wanted.detach().cpu(), rtol=1e-12)


def test_burgers_equation_by_fourier_series(monkeypatch):
    fourier = load("fourier", monkeypatch)
    before = fourier.fields(np.random.default_rng(0), 4)
    after = fourier.solved(before)
    np.testing.assert_allclose(after, fourier.solved(before, 200), atol=1e-3)
    # A small field only spreads: each frequency falls by exp(-v k**2).
    k = np.arange(fourier.FINE // 2 + 1)
    spread = np.fft.irfft(np.fft.rfft(before) * np.exp(-fourier.VISCOSITY * k**2))
    np.testing.assert_allclose(fourier.solved(1e-6 * before), 1e-6 * spread, atol=1e-10)
    # A constant added to a field only carries it round the circle.
    carried = fourier.solved(before + 2 * np.pi, 400)
    np.testing.assert_allclose(carried - 2 * np.pi, after, atol=1e-2)


def test_the_penalty_is_zero_where_the_slope_is_one(monkeypatch, tmp_path):
    game = Example("wasserstein", monkeypatch).begin(tmp_path)
    points = lucid_gpu.randn(16, 2)
    game.critic = lambda x: (x * lucid_gpu.tensor([0.6, 0.8])).sum(1)
    assert game.penalty(points, -points).item() == pytest.approx(0, abs=1e-10)
    game.critic = lambda x: 3 * x[:, 0]
    assert game.penalty(points, -points).item() == pytest.approx(4)


def test_the_gradient_of_spreading(monkeypatch):
    gcn = load("gcn", monkeypatch)
    images = np.random.default_rng(0).random((12, 3))
    indices, values = gcn.edges_of(gcn.neighbors(images), "cpu")
    x = lucid_gpu.rand(12, 2, dtype=lucid_gpu.float64).requires_grad_()
    assert gradcheck(lambda x: gcn.Spread.apply(indices, values.double(), x), x)
    # Rows of the matrix D^-1/2 A D^-1/2 times sqrt(degree) sum to sqrt(degree).
    degree = np.bincount(indices[0].numpy(), minlength=12).astype(np.float32)
    root = lucid_gpu.tensor(degree[:, None] ** 0.5)
    np.testing.assert_allclose(gcn.Spread.apply(indices, values, root), root, rtol=1e-5)


def test_the_analytic_solution_solves_the_equation(monkeypatch):
    burgers = load("burgers", monkeypatch)
    t, x, h = *np.meshgrid([0.1, 0.5, 0.9], np.linspace(-0.8, 0.8, 9)), 1e-4

    def u(dt=0.0, dx=0.0):
        return burgers.exact(t + dt * h, x + dx * h)

    u_t, u_x = (u(1, 0) - u(-1, 0)) / (2 * h), (u(0, 1) - u(0, -1)) / (2 * h)
    u_xx = (u(0, 1) - 2 * u() + u(0, -1)) / h**2
    np.testing.assert_allclose(u_t + u() * u_x, burgers.VISCOSITY * u_xx, atol=1e-3)
    x = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(burgers.exact(0 * x + 1e-9, x), -np.sin(np.pi * x), atol=1e-6)
    np.testing.assert_allclose(burgers.exact(t, 0 * x[:, None] + 1.0), 0, atol=1e-9)


def array_of(device, values):
    values = np.asarray(values, np.float64)
    return lucid_gpu.tensor(values, device=device).cupy() if device == "cuda" else values


def test_the_marginal_likelihood_is_scikit_learns(monkeypatch, device):
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    from sklearn.gaussian_process import GaussianProcessRegressor

    gp, rng = load("gaussian_process", monkeypatch), np.random.default_rng(0)
    x, y, new, theta = (rng.normal(size=shape) for shape in ((9, 2), 9, (4, 2), 5))
    parts = np.exp(theta)
    kernel = parts[2] * kernels.RBF(parts[:2]) + kernels.WhiteKernel(parts[4])
    kernel += parts[3] * kernels.DotProduct(1e-9)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(x, y)
    tensors = [lucid_gpu.tensor(a, device=device) for a in (theta, x, y, new)]
    np.testing.assert_allclose(
        gp.misfit(*tensors[:3]).item(), -theirs.log_marginal_likelihood(), rtol=1e-8
    )
    found = [part.cpu().numpy() for part in gp.predict(*tensors)]
    for ours, wanted in zip(found, theirs.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)


def test_the_heat_equations_gradient_leaves_nothing_behind(monkeypatch, device):
    """Objects and memory after six gradients through thirty steps are no more than after three."""
    heat = load("heat", monkeypatch)
    rng = np.random.default_rng(0)
    root, seen = (array_of(device, rng.random((16, 16))) for _ in range(2))

    def gradient():
        function = lucid_gpu.numpy.grad(lambda r: heat.misfit(r, seen, 0.1, 30))
        return lucid_gpu.as_tensor(function(root)).cpu().numpy()

    def living():
        pending._noted.tensors()  # forgets the dead, as it does by and by once streams are in use
        gc.collect()
        return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]

    first = gradient()  # makes its programs, whose plans get their tables in the third run
    tracemalloc.start()
    try:
        again = [gradient(), gradient()]
        before = living()
        again += [gradient() for _ in range(3)]
        after = living()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(first, again[-1])
    assert after[0] - before[0] < 30  # fewer: what other tests left behind has gone meanwhile
    assert after[1] - before[1] < 3 * first.nbytes + 50_000  # the states of 30 steps have 61,440
    segments = lucid_gpu.numpy.grad(lambda r: heat.misfit(r, seen, 0.1, 30, 8))(root)
    np.testing.assert_allclose(lucid_gpu.as_tensor(segments).cpu().numpy(), first, rtol=1e-12)


def test_the_local_energy_of_the_exact_state_is_its_energy(monkeypatch, device):
    dot, rng = load("quantum_dot", monkeypatch), np.random.default_rng(0)
    walkers = array_of(device, rng.normal(size=(20, 4)))
    energies, step = dot.energy_and_step(array_of(device, [1, 1, 0]), walkers)
    np.testing.assert_allclose(lucid_gpu.as_tensor(energies).cpu().numpy(), dot.EXACT, rtol=1e-9)
    np.testing.assert_allclose(lucid_gpu.as_tensor(step).cpu().numpy(), 0, atol=1e-6)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path):
    pytest.importorskip("mpi4py", reason="several processes need it: pip install '.[mpi]'")
    flags = ["--steps", "2", "--sample", "2", "--processes", "2"]
    flags += ["--device", "cpu", "--out", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "char_gpt.py"), *flags],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    alone, two = ran.stdout.splitlines()[-2:]  # one process of the two prints
    assert alone.startswith("one process, validation, bits a letter: ")
    assert two.startswith("validation, bits a letter: ")
    curves = [json.loads((tmp_path / f / "curves.json").read_text()) for f in ("", "one")]
    for name, values in curves[0].items():
        assert values == pytest.approx(curves[1][name], rel=1e-3)
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path):
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "char_gpt.py"), "--processes", "3", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2 and "--processes must divide 8" in ran.stderr
