"""The launchers there are: CuPy's, one for each GPU, and the host's."""

from __future__ import annotations

from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.launch.launcher import Launcher

__all__ = ["launcher_of"]

_launchers: dict[device, Launcher] = {}


def launcher_of(where: device) -> Launcher:
    """The launcher of a device; a cuda device without a number means the current one."""
    launcher = _launchers.get(where)
    if launcher is None:
        if where.type == "cpu":
            from lucid_gpu.launch.host import HostLauncher

            launcher = _launchers[where] = HostLauncher()
        elif where.index is None:
            return launcher_of(device("cuda", backend(where).current_index()))
        else:
            from lucid_gpu.launch.cuda import CudaLauncher

            launcher = _launchers[where] = CudaLauncher(where)
    return launcher
