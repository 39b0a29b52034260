"""One process or many: rank, world size, and the few things that ranks share.

With a single process every sum is the identity, so the loop is written once. Ranks are started by
``torchrun``, or on the cores of one machine by `local_processes`: two processes train nearly twice
as fast where two threads do not.

The loss of a rank is divided by the number of targets of all ranks and multiplied by the number of
ranks: the mean of such gradients is the gradient of one large batch, however its padding falls.
"""

import inspect
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from music_transformer.errors import ConfigError, MusicTransformerError
from music_transformer.processes import follow_parent, usable_cores

# Rank 0 validates and writes alone while the others block in the next collective.
_PATIENCE = timedelta(hours=2)

# Gloo's threads need a moment of the interpreter's lock before their group may end; see `destroy`.
_LET_GO_SECONDS = 0.5
_EVENTS_OF_A_PROCESS = 1024  # in one forward pass, at least


@dataclass(frozen=True)
class DistributedContext:
    """This process among those that train together."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def all_reduce(self, values: list[float], device: torch.device) -> list[float]:
        """Each value summed over all ranks."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """The module as ranks call it: the backward pass leaves the mean of all their gradients."""
        if self.world_size == 1:
            return module
        # Buffers are tables that every rank computes for itself. Later versions of torch call this
        # otherwise, and warn of the earlier name.
        known = inspect.signature(DistributedDataParallel).parameters
        name = next(n for n in ("forward_sync_buffers", "broadcast_buffers") if n in known)
        options: dict[str, Any] = {name: False}
        return DistributedDataParallel(module, **options)

    def no_sync(self, joined: nn.Module) -> AbstractContextManager[None]:
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

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in order; they are on the CPU and of one shape."""
        if self.world_size == 1:
            return [tensor]
        gathered: list[Tensor | None] = [None] * self.world_size
        dist.all_gather_object(gathered, tensor)
        return [part for part in gathered if part is not None]

    def broadcast_parameters(self, model: nn.Module) -> None:
        """Give every rank the weights of rank 0."""
        if self.world_size > 1:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)

    def barrier(self) -> None:
        """Return when all ranks are here."""
        if self.world_size > 1:
            dist.barrier()

    def destroy(self) -> None:
        """End the group, if there is one.

        Gloo's threads need the interpreter's lock to let go of the last tensors they sent, and a
        group that ends while an error holds its model does not give it away. They get it first.
        """
        if self.world_size > 1 and dist.is_initialized():
            time.sleep(_LET_GO_SECONDS)
            dist.destroy_process_group()


def join_distributed(device: torch.device) -> DistributedContext:
    """The ranks of this launch: those of ``torchrun``, or one alone.

    `ConfigError` where the environment speaks of ranks, but torch cannot connect them.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        return DistributedContext()
    if not dist.is_available():
        raise ConfigError(f"WORLD_SIZE={world_size}, but this build of torch has no distributed.")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where NCCL puts what it sends
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    return DistributedContext(dist.get_rank(), dist.get_world_size())


@contextmanager
def local_processes(
    count: int, work: Callable[[DistributedContext], None]
) -> Iterator[DistributedContext]:
    """This process as rank 0 of `count`; the others do `work`, a picklable function, meanwhile.

    Raises:
        ConfigError: one of the others died; the collective that this process was in fails too.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = (Path(folder) / "ranks").as_uri()  # a file: no port that others may have
        spawn = multiprocessing.get_context("spawn")  # alike on every system
        others = [
            spawn.Process(target=_local_rank, args=(rank, count, store, work))
            for rank in range(1, count)
        ]
        for process in others:
            process.start()
        try:
            context = _connected(0, count, store)
            try:
                yield context
            finally:
                context.destroy()
            for process in others:
                process.join()
        except RuntimeError as error:
            died = [p.exitcode for p in others if p.exitcode]
            if not died:
                raise
            raise ConfigError(
                f"processes={count}: one of them died with exit code {died[0]} ({error}); start "
                "fewer, if memory is short."
            ) from error
        finally:
            for process in others:
                process.kill()  # those that still wait for this one
                process.join()


def _local_rank(
    rank: int, count: int, store: str, work: Callable[[DistributedContext], None]
) -> None:
    follow_parent()
    context = _connected(rank, count, store)
    try:
        work(context)
    except MusicTransformerError:
        sys.exit(1)  # rank 0 comes to the same error and says it
    finally:
        context.destroy()


def _connected(rank: int, count: int, store: str) -> DistributedContext:
    # The name of this machine may lead nowhere; what stays on it needs none.
    loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=count, timeout=_PATIENCE
    )
    return DistributedContext(rank, count)


def default_processes(batch_size: int, window: int) -> int:
    """How many processes share `batch_size` windows of `window` events where nobody chose.

    One a core that this process may use, as long as each has as many windows as the others and
    enough of them that sending the gradients is little beside making them.
    """
    fitting = [
        count
        for count in range(1, usable_cores() + 1)
        if batch_size % count == 0 and batch_size * window >= count * _EVENTS_OF_A_PROCESS
    ]
    return max(fitting, default=1) if dist.is_available() else 1


def local_device(device: torch.device) -> torch.device:
    """The GPU of this rank where GPUs are used and none was named; `ConfigError` if it has none."""
    if device.type != "cuda" or device.index is not None or "LOCAL_RANK" not in os.environ:
        return device
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count:
        raise ConfigError(
            f"LOCAL_RANK={index}, but this machine has {count} GPUs; start at most "
            f"--nproc-per-node {count}."
        )
    return torch.device("cuda", index)
