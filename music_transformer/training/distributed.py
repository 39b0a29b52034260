"""One process or many: rank, world size, and the few sums that ranks share.

Under ``torchrun`` every rank draws its own windows (seed + rank), gradients are summed over ranks,
and only rank 0 writes. Outside of it `Ranks` has one member and every sum is the identity, so the
loop is written once. Since the loss is divided by the number of targets of all ranks, the *sum* of
the gradients is that of one large batch; `DistributedDataParallel` would give their mean.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from music_transformer.errors import ConfigError


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    world_size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def sums(self, values: list[float], device: torch.device) -> list[float]:
        """Each value summed over all ranks."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all ranks, in one message."""
        if self.world_size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        offset = 0
        for gradient in gradients:
            count = gradient.numel()
            gradient.copy_(flat[offset : offset + count].view_as(gradient))
            offset += count

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in order; they are on the CPU and of one shape."""
        if self.world_size == 1:
            return [tensor]
        gathered: list[Tensor | None] = [None] * self.world_size
        dist.all_gather_object(gathered, tensor)
        return [part for part in gathered if part is not None]

    def same_start(self, model: nn.Module) -> None:
        """Give every rank the weights of rank 0."""
        if self.world_size > 1:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        """Return when all ranks are here."""
        if self.world_size > 1:
            dist.barrier()

    def leave(self) -> None:
        """End the group, if there is one."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def join_ranks(device: torch.device) -> Ranks:
    """The ranks of this launch: those of ``torchrun``, or one alone.

    Raises:
        ConfigError: the environment speaks of ranks, but torch cannot connect them.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        return Ranks()
    if not dist.is_available():
        raise ConfigError(f"WORLD_SIZE={world_size}, but this build of torch has no distributed.")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size())


def local_device(device: torch.device) -> torch.device:
    """The GPU of this rank where GPUs are used and none was named."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device
