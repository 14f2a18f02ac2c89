"""The main job as a user runs it: a process of its own, its output, its files, its sentences."""

import functools
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.checkpoints import contents

pytest.importorskip("sklearn", reason="pip install '.[train]'")
pytest.importorskip("matplotlib", reason="pip install '.[train]'")
pytest.importorskip("tqdm", reason="pip install '.[train]'")

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "examples" / "train_digits.py"), "--alone"]
# it reaches a child also where the tests run in the background and ignore it
CTRL_C = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": "/tmp"}


def run(folder, *flags, **settings):
    return subprocess.run(
        [*COMMAND, "--device", "cpu", "--out", str(folder), *flags],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=280,
        check=False,
        **settings,
    )


def one_sentence(result, status=1):
    """The only thing said on stderr."""
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith("train_digits: ") and result.stderr.count("\n") == 1
    return result.stderr


def accuracy(result):
    assert result.returncode == 0, result.stderr
    words, _, number = result.stdout.splitlines()[-1].rpartition(" ")
    assert words == "test accuracy:"
    return float(number)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after two epochs, and what was said."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, run(folder, "--epochs", "2")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_learns_to_read(model, tmp_path):
    assert accuracy(run(tmp_path, "--model", model)) >= 0.97


def test_what_it_leaves(trained):
    folder, result = trained
    assert accuracy(result) > 0.8
    names = {"checkpoint.pt", "curves.json", "curves.png"}
    assert {p.name for p in folder.iterdir()} == names
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_resuming_gives_the_numbers_of_an_unbroken_run(trained, tmp_path):
    folder, _ = trained
    whole = run(tmp_path / "whole", "--epochs", "10", "--seed", "5")
    (tmp_path / "parts").mkdir()
    first = subprocess.Popen(
        [*COMMAND, "--device", "cpu", "--out", str(tmp_path / "parts"), "--epochs", "10"]
        + ["--seed", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=CTRL_C,
    )
    interrupt_in_training(first, tmp_path / "parts")
    second = run(tmp_path / "parts", "--epochs", "10", "--resume")
    assert second.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    unbroken, resumed = [contents(tmp_path / f / "checkpoint.pt") for f in ("whole", "parts")]
    assert unbroken == resumed


def interrupt_in_training(process, folder):
    """Ctrl-C after the first of ten epochs."""
    assert " weights on cpu: " in process.stdout.readline()
    assert process.stdout.readline().startswith("epoch 1/10")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=280)
    assert "Traceback" not in err
    if process.returncode == 0 or "interrupted; the last checkpoint" in err:
        return  # the last epoch was over before the signal came
    assert process.returncode == 130
    assert "--resume goes on from" in out
    assert (folder / "checkpoint.pt").exists() and (folder / "curves.png").exists()


def test_interrupt_while_starting(tmp_path):
    """Ctrl-C as soon as a part of lucid_gpu is imported, which Python says on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=CTRL_C,
    )
    while " lucid_gpu." not in process.stderr.readline():
        assert process.poll() is None
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=280)
    assert process.returncode == 130 and "Traceback" not in err
    assert "interrupted before training began" in err


def test_a_damaged_checkpoint(trained, tmp_path):
    data = bytearray((trained[0] / "checkpoint.pt").read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "checkpoint.pt").write_bytes(data)
    said = one_sentence(run(tmp_path, "--resume"))
    assert "does not match its checksum" in said and "leave out --resume" in said
    (tmp_path / "checkpoint.pt").write_bytes(b"hello, this is no checkpoint")
    assert "neither a safetensors file" in one_sentence(run(tmp_path, "--resume"))


@pytest.mark.slow
def test_a_checkpoint_of_something_else(trained, tmp_path):
    assert "say --model mlp" in one_sentence(run(trained[0], "--resume", "--model", "cnn"))
    import lucid_gpu

    lucid_gpu.save({"model": "mlp"}, tmp_path / "checkpoint.pt")
    assert "no checkpoint of this script" in one_sentence(run(tmp_path, "--resume"))


def test_no_checkpoint(tmp_path):
    assert "there is no" in one_sentence(run(tmp_path, "--resume"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model", "rnn"], "argument --model: invalid choice: 'rnn'"),
        (["--epochs", "0"], "'0' is not a positive whole number"),
        (["--epochs", "many"], "'many' is not a positive whole number"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--speed"], "unrecognized arguments: --speed"),
    ],
)
def test_wrong_flags(flags, words, tmp_path):
    said = one_sentence(run(tmp_path, *flags), 2)
    assert words in said and "--help" in said


def test_a_gpu_that_is_not_there(tmp_path):
    import lucid_gpu

    if lucid_gpu.cuda.is_available():
        return
    assert "cuda" in one_sentence(run(tmp_path, "--device", "cuda"))


def test_a_full_disk(trained, tmp_path):
    """A limit on the size of files stands for a disk that is full."""
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(before := (trained[0] / file.name).read_bytes())

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    said = one_sentence(run(tmp_path, "--resume", "--epochs", "3", preexec_fn=limit))
    assert "cannot write" in said and "untouched" in said
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in one_sentence(run(tmp_path / "file"))
