"""`torch._amp_*`: what a GradScaler of one's own calls on lists of gradients and on its scale."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu import Tensor, isfinite, no_grad

__all__ = ["_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"]


@no_grad()
def _amp_foreach_non_finite_check_and_unscale_(
    self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor
) -> None:
    """Multiply tensors by `inv_scale` in place; `found_inf` becomes 1 if one is not finite."""
    for t in self:
        found_inf.masked_fill_(~isfinite(t).all(), 1.0)
        t.mul_(inv_scale)


@no_grad()
def _amp_update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Write the next scale and count of good steps, all of one element, and return the scale."""
    if found_inf:
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
    elif growth_tracker + 1 == growth_interval:
        if isfinite(self * scale_growth_factor):
            self.mul_(scale_growth_factor)
        growth_tracker.zero_()
    else:
        growth_tracker.add_(1)
    return self
