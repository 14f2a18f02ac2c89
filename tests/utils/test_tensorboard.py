"""SummaryWriter: what is written can be read back, checksums included."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.devices import installing

pytest.importorskip("tensorboardX", reason="pip install '.[tensorboard]'")

from tensorboardX.proto.event_pb2 import Event

from lucid_gpu.utils.tensorboard import SummaryWriter


def masked_crc(data):
    """CRC-32C by its definition, rotated as TFRecord wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def events(folder):
    """The values of all event files beneath a folder, by tag."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            assert struct.unpack("<I", data[8:12])[0] == masked_crc(data[:8])
            record = data[12 : 12 + size]
            assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked_crc(record)
            event = Event.FromString(record)
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value))
            data = data[16 + size :]
    return found


@pytest.mark.filterwarnings("error:Converting a tensor")
def test_what_is_written_is_read_back(tmp_path, device):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            loss = lucid_gpu.full((), step / 2, device=device, requires_grad=True)
            writer.add_scalar("loss", loss, step)
        writer.add_scalars("both", {"a": lucid_gpu.ones((), device=device), "b": 2.0}, 1)
        weights = lucid_gpu.arange(8.0, device=device)
        writer.add_histogram("weights", weights.to(lucid_gpu.bfloat16), 2)
        writer.add_image("image", lucid_gpu.zeros(3, 4, 5, device=device), 2)
        writer.add_text("note", "two words", 1)
        assert writer.log_dir == writer.get_logdir() == str(tmp_path)
    found = events(tmp_path)
    assert [(s, v.simple_value) for s, v in found["loss"]] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    step, histogram = found["weights"][0]
    assert (step, histogram.histo.num, histogram.histo.max) == (2, 8, 7)
    image = found["image"][0][1].image
    assert (image.height, image.width) == (4, 5) and image.encoded_image_string[1:4] == b"PNG"
    assert b"two words" in found["note/text_summary"][0][1].tensor.string_val[0]
    assert {v.simple_value for tag in found if "both" in tag for _, v in found[tag]} == {1.0, 2.0}


def test_figures_and_settings(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(1, 1))
    with SummaryWriter(log_dir=str(tmp_path), comment="x") as writer:
        writer.add_figure("figure", figure, 3)
        writer.add_hparams({"lr": 0.1}, {"loss": lucid_gpu.tensor(0.5)})
        with pytest.raises(NotImplementedError, match="viz.graph"):
            writer.add_graph(None)
    found = events(tmp_path)
    assert found["figure"][0][0] == 3
    assert np.isclose(found["loss"][0][1].simple_value, 0.5)


def test_a_missing_package_is_named():
    program = "import sys; sys.modules['tensorboardX'] = None\nimport lucid_gpu.utils.tensorboard"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "[tensorboard]'" in run.stderr and installing.command("tensorboard") in run.stderr
