"""One process or many: rank, world size, and the few things that ranks share.

Under ``torchrun`` every rank draws its own rows of each batch, `DistributedDataParallel` averages
the gradients while the backward pass goes on, and only rank 0 writes. Outside of it `Ranks` has one
member and every sum is the identity, so the loop is written once.

The loss of a rank is divided by the number of targets of all ranks and multiplied by the number of
ranks: the mean of such gradients is the gradient of one large batch, however its padding falls.
"""

import inspect
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from music_transformer.errors import ConfigError

# Rank 0 validates and writes alone while the others wait for its next message.
_PATIENCE = timedelta(hours=2)

_LET_GO_SECONDS = 0.5


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

    def joined(self, module: nn.Module) -> nn.Module:
        """The module as ranks that train together call it.

        A backward pass leaves the *mean* of the gradients of all ranks, sent while it goes on.
        """
        if self.world_size == 1:
            return module
        # Buffers are tables that every rank computes for itself. Later versions of torch call this
        # otherwise, and warn of the earlier name.
        known = inspect.signature(DistributedDataParallel).parameters
        name = next(n for n in ("forward_sync_buffers", "broadcast_buffers") if n in known)
        options: dict[str, Any] = {name: False}
        return DistributedDataParallel(module, **options)

    def without_sending(self, joined: nn.Module) -> AbstractContextManager[None]:
        """For all forward passes of an update but its last: gradients pile up in each rank."""
        if isinstance(joined, DistributedDataParallel):
            return joined.no_sync()
        return nullcontext()

    def any_of(self, word: str | None) -> str | None:
        """The word of the first rank that has one; every rank has to ask."""
        if self.world_size == 1:
            return word
        words: list[str | None] = [None] * self.world_size
        dist.all_gather_object(words, word)
        return next((said for said in words if said is not None), None)

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
        """End the group, if there is one.

        The threads of gloo need the interpreter's lock to let go of the last tensors they sent, and
        a group that ends while an error still holds its model waits for them without giving that
        lock away. So they get it first.
        """
        if self.world_size > 1 and dist.is_initialized():
            time.sleep(_LET_GO_SECONDS)
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
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where NCCL puts what it sends
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    return Ranks(dist.get_rank(), dist.get_world_size())


def local_device(device: torch.device) -> torch.device:
    """The GPU of this rank where GPUs are used and none was named.

    Raises:
        ConfigError: there are more ranks on this machine than GPUs.
    """
    if device.type != "cuda" or device.index is not None or "LOCAL_RANK" not in os.environ:
        return device
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count:
        raise ConfigError(
            f"LOCAL_RANK={index}, but this machine has {count} GPUs; start at most "
            f"--nproc-per-node {count}."
        )
    return torch.device("cuda", index)
