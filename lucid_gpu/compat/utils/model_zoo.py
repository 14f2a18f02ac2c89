"""`torch.utils.model_zoo`: an old name of functions of `torch.hub`."""

from __future__ import annotations

from lucid_gpu.hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url
