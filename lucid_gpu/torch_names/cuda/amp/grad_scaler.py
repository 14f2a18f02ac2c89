"""`torch.cuda.amp.grad_scaler`."""

from lucid_gpu.amp.grad_scaler import OptState
from lucid_gpu.cuda.amp import GradScaler

__all__ = ["GradScaler", "OptState"]
