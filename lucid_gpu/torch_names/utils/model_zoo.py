"""`torch.utils.model_zoo`: an old name of functions of `torch.hub`."""

from __future__ import annotations

from lucid_gpu import hub

__all__ = ["load_url", "tqdm"]

load_url, tqdm = hub.load_state_dict_from_url, hub.tqdm
