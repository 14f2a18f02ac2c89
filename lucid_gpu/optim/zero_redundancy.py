"""An optimizer whose state is spread over ranks (ZeRO, stage 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.distributed.algorithms.join import Join, Joinable, JoinHook
from lucid_gpu.ops.shape import cat
from lucid_gpu.optim.optimizer import Group, Optimizer
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Updates each parameter on one rank, which alone keeps its state, and sends it to the others.

    Rajbhandari, Rasley, Ruwase and He, ZeRO: memory optimizations toward training trillion
    parameter models (2020), stage 1. All ranks have equal gradients, as after backward of
    `nn.parallel.DistributedDataParallel`, and call `step` together.

    Parameters
    ----------
    params : iterable of Tensor or of dict
        In the same order on all ranks.
    optimizer_class : type
        The optimizer of each rank's share, such as `optim.Adam`.
    process_group : ProcessGroup, optional
    parameters_as_bucket_view : bool
        Accepted and ignored.
    overlap_with_ddp : bool
        False.
    **defaults
        The optimizer's settings.

    Attributes
    ----------
    optim : Optimizer
        This rank's.

    Raises
    ------
    NotImplementedError
        For ``overlap_with_ddp=True``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not here; call step() after backward"
            )
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self._rank = dist.get_rank(self.process_group)
        self._sizes = [0] * dist.get_world_size(self.process_group)  # elements that each rank has
        self._owners: list[list[int]] = []  # of the parameters of each group
        self._whole: dict[str, Any] | None = None
        self.optim: Any = None
        super().__init__(params, defaults)
        shares = [self._share(i) for i in range(len(self.param_groups))]
        self.optim = optimizer_class(shares, **defaults)
        for group, share in zip(self.param_groups, self.optim.param_groups):
            group.update({k: v for k, v in share.items() if k not in ("params", "param_names")})

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with settings of their own; all ranks do."""
        super().add_param_group(param_group)
        params = self.param_groups[-1]["params"]
        owners = [0] * len(params)
        for i in sorted(range(len(params)), key=lambda i: -params[i].numel()):
            owners[i] = self._sizes.index(min(self._sizes))
            self._sizes[owners[i]] += params[i].numel()
        self._owners.append(owners)
        if self.optim is not None:
            self.optim.add_param_group(self._share(len(self._owners) - 1))
            settings = self.optim.param_groups[-1]
            self.param_groups[-1].update({k: v for k, v in settings.items() if k != "params"})

    def _share(self, i: int) -> Group:
        """Group ``i`` with this rank's parameters only."""
        group, owners = self.param_groups[i], self._owners[i]
        share = {k: v for k, v in group.items() if k != "param_names"}
        share["params"] = [p for p, owner in zip(group["params"], owners) if owner == self._rank]
        return share

    def _settings(self, source: list[Group], into: list[Group]) -> None:
        for group, other in zip(source, into):
            other.update({k: v for k, v in group.items() if k not in ("params", "param_names")})

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Change the parameters once, each on its rank; all ranks call it.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again, with gradients, and returns the loss.
        **kwargs
            For `step` of the optimizer.

        Returns
        -------
        What the closure returned, or None.
        """
        Join.notify_join_context(self)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._settings(self.param_groups, self.optim.param_groups)  # schedulers change ours
        self.optim.step(**kwargs)
        self._settings(self.optim.param_groups, self.param_groups)
        self._share_out()
        return loss

    def _share_out(self) -> None:
        """Give all ranks the parameters as their owners have them."""
        begun: list[tuple[list[Tensor], Tensor, Any, bool]] = []
        with no_grad():
            for (owner, _, _), params in self._by_owner().items():
                flat = cat([p.detach().reshape(-1) for p in params])
                work = dist.broadcast(
                    flat, group=self.process_group, async_op=True, group_src=owner
                )
                begun.append((params, flat, work, owner == self._rank))
            for params, flat, work, mine in begun:
                work.wait()
                if not mine:
                    for p, part in zip(params, flat.split([p.numel() for p in params])):
                        p.copy_(part.view(p.shape))

    def _by_owner(self) -> dict[Any, list[Tensor]]:
        """Parameters by owner, type and device, in the same order on all ranks."""
        owned: dict[Any, list[Tensor]] = {}
        for group, owners in zip(self.param_groups, self._owners):
            for p, owner in zip(group["params"], owners):
                owned.setdefault((owner, p.dtype, p.device), []).append(p)
        return owned

    # -- state ------------------------------------------------------------------------------

    def _numbers_here(self) -> list[list[int]]:
        """This rank's parameters in each group, as numbers in the whole."""
        numbers, first = [], 0
        for owners in self._owners:
            numbers.append([first + i for i, owner in enumerate(owners) if owner == self._rank])
            first += len(owners)
        return numbers

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the states of all ranks on rank ``to`` of the group; all ranks call it."""
        self._settings(self.param_groups, self.optim.param_groups)
        mine = self.optim.state_dict()
        whole = [n for numbers in self._numbers_here() for n in numbers]
        states = {whole[local]: state for local, state in mine["state"].items()}
        every: list[Any] | None = [None] * len(self._sizes) if self._rank == to else None
        dist.gather_object(states, every, group=self.process_group, group_dst=to)
        self._whole = None
        if every is None:
            return
        groups, first = [], 0
        for group, own in zip(mine["param_groups"], self.param_groups):
            count = len(own["params"])
            groups.append({**group, "params": list(range(first, first + count))})
            first += count
        merged = {n: state for states in every for n, state in states.items()}
        self._whole = {"state": dict(sorted(merged.items())), "param_groups": groups}

    def state_dict(self) -> dict[str, Any]:
        """The states of all ranks, as one optimizer would save them, after
        `consolidate_state_dict`.

        Raises
        ------
        RuntimeError
            If that was not called, or for another rank.
        """
        if self._whole is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self._rank})` on all ranks beforehand if you meant "
                "to save the global state."
            )
        return self._whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over this rank's share of a state that one optimizer, or `state_dict`, has saved.

        Raises
        ------
        ValueError
            If the groups differ in number or size.
        """
        groups = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        if sizes != [len(owners) for owners in self._owners]:
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: it has groups of {sizes} parameters, this optimizer of "
                f"{[len(owners) for owners in self._owners]}"
            )
        saved = [name for group in groups for name in group["params"]]
        shares = [
            {**group, "params": [saved[n] for n in numbers]}
            for group, numbers in zip(groups, self._numbers_here())
        ]
        here = {name for share in shares for name in share["params"]}
        states = {
            name: state
            for name, state in state_dict["state"].items()
            if (int(name) if isinstance(name, str) and name.isdigit() else name) in here
        }
        self.optim.load_state_dict({"state": states, "param_groups": shares})
        self._settings(self.optim.param_groups, self.param_groups)
        self._whole = None

    # -- uneven inputs ----------------------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What `distributed.algorithms.join.Join` calls where inputs have ended."""
        return _Steps(self)

    @property
    def join_device(self) -> Any:
        """Where the first parameter is."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        return self.process_group


class _Steps(JoinHook):
    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self._zero = zero

    def main_hook(self) -> None:
        self._zero.step()
