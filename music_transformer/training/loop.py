"""The training loop: one for one device and for torchrun.

What an update does is a function of the weights, the optimizers, the generators and the step, and a
step's folder holds all of these: so a run that was killed and resumed equals one that was not, bit
for bit (on a CPU with the same number of threads).
"""

import copy
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_transformer.checkpoint.format import load_weights, read_config, write_files
from music_transformer.datasets.pairs import training_windows
from music_transformer.datasets.prepared import PreparedData
from music_transformer.errors import CheckpointError, ConfigError, DivergenceError
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.progress import Progress
from music_transformer.training.config import TrainingConfig
from music_transformer.training.distributed import DistributedContext
from music_transformer.training.optimizers import (
    build_optimizers,
    learning_rate,
    optimizer_tensors,
    restore_optimizers,
    set_learning_rate,
)
from music_transformer.training.precision import checkpoint_layers, compiled, use_bfloat16
from music_transformer.training.run_dir import (
    RunFolder,
    RunState,
    TrainingResult,
    gather_generators,
    read_state,
    restore_generators,
    write_state,
)

_EVALUATION_BATCH = 8


class Trainer:
    """A model, its optimizers and where they stand; `train` runs to the end or to a stop.

    Args:
        model: on its device, with the weights to start from.
        data: windows are drawn from its split ``train``; ``validation``, if there, chooses.
        run: where steps and metrics go.
        bfloat16: take the products of linear layers in bfloat16.
        description: what else each checkpoint should say of its making.
    """

    def __init__(
        self,
        model: Any,
        data: PreparedData,
        config: TrainingConfig,
        run: RunFolder,
        *,
        bfloat16: bool = False,
        description: Mapping[str, Any] | None = None,
        ranks: DistributedContext | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.model, self.data, self.config, self.run = model, data, config, run
        self.description = dict(description or {})
        self.ranks = ranks or DistributedContext()
        self.progress = progress or Progress()
        self.bfloat16 = bfloat16
        self.device = next(model.parameters()).device
        self.window = config.window or model.config.context
        if self.window > model.config.context:
            raise ConfigError(
                f"window={self.window} is longer than context={model.config.context}; "
                f"set context={self.window} too, or a shorter window."
            )
        if config.token_dropout and getattr(model.config, "cross_position", None) == "time":
            raise ConfigError(
                f"token_dropout={config.token_dropout:g} hides events that tell the time, which "
                "cross_position=time counts; use token_dropout=0."
            )
        if config.label_smoothing and getattr(model.config, "performance_state", False):
            raise ConfigError(
                f"label_smoothing={config.label_smoothing:g} asks for what performance_state "
                "forbids; use label_smoothing=0."
            )
        if bfloat16:
            use_bfloat16(model)
        if config.checkpoint_activations:
            checkpoint_layers(model)
        self.optimizers = self._new_optimizers(model)
        self.ema_model = copy.deepcopy(model) if config.ema is not None else None
        self.windows = training_windows(
            data,
            length=self.window,
            batch_size=config.batch_size,
            seed=config.seed,
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            augment=config.augment,
            plain=config.plain,
            gaps=config.gaps,
        )
        self.state = RunState(world_size=self.ranks.world_size)
        self.last_loss: float | None = None
        self.first_nll: float | None = None
        self.last_nll: float | None = None
        self.measured_step: int | None = None
        self.asked_to_stop: str | None = None

    def stop(self, reason: str) -> None:
        """Ask for a stop after the update that is being made; signal handlers may call this."""
        self.asked_to_stop = reason

    def measure_start(self) -> float | None:
        """The quick validation NLL of the weights that the run begins with, if it can be told."""
        if "validation" in self.data.splits:
            self.first_nll = self._quick_nll()
        return self.first_nll

    def train(self) -> TrainingResult:
        """Go on to the last step, to a stop, or until the time is up; the end is a checkpoint."""
        state, config = self.state, self.config
        self.progress.begin(config.steps, done=state.step)
        started = self.saved_at = self.clock = time.monotonic()
        seconds_before, self.clock_events = state.seconds, state.events
        self.model.train()
        self.forward = self._forward()
        if self.ranks.world_size > 1:
            self._warm_up_ddp_buckets()
        # Windows are a function of the step, so a resumed run needs no position in the data.
        self.batches = self.windows.prefetch(state.step * config.accumulate, workers=config.workers)
        try:
            reason = self._until_stopped(started, seconds_before)
        finally:
            # What joined the ranks must be gone before their group ends: the last one to hold the
            # group waits for its threads, and only the group itself gives them Python's lock then.
            self.forward = self.model
            self.batches.close()
            self.progress.end()
        return self._result(reason)

    def _until_stopped(self, started: float, seconds_before: float) -> str:
        """Update after update, with what is due in between; why it stopped."""
        state, config = self.state, self.config
        while state.step < config.steps:
            norm, rate = self._update()
            state.seconds = seconds_before + time.monotonic() - started
            self.progress.update()
            last = state.step == config.steps
            if last or state.step % config.log_every == 0:
                self._log_metrics(rate, norm)
            improved = self._validate() if self._validation_is_due() else False
            wanted = self.asked_to_stop or self._time_is_up(time.monotonic() - started)
            save = self.ranks.is_main and (improved or self._checkpoint_is_due())
            wishes = [float(save), float(wanted is not None)]  # rank 0 saves, any may stop
            save, stop = (wish > 0 for wish in self.ranks.all_reduce(wishes, self.device))
            if save or stop or last:
                self._checkpoint()
            if stop and not last:
                return self.ranks.any_of(wanted) or "stopped"
        return "finished"

    def time_update(self) -> float:
        """Seconds of one update, measured on a copy: nothing of the run changes."""
        with torch.random.fork_rng(devices=self._cuda_devices()):
            trial = copy.copy(self)
            trial.model = copy.deepcopy(self.model).train()
            trial.ema_model = None
            trial.ranks = DistributedContext()
            trial.state = RunState()
            trial.forward = trial._forward()
            trial.batches = self.windows.prefetch()
            trial.optimizers = self._new_optimizers(trial.model)
            trial._update()  # the first one also allocates
            start = time.perf_counter()
            trial._update()
            seconds = time.perf_counter() - start
            trial.batches.close()
            return seconds

    def _forward(self) -> nn.Module:
        """The model as an update calls it, compiled if so asked and joined with the other ranks."""
        called = compiled(self.model, self.device) if self.config.compile else self.model
        return self.ranks.wrap_ddp(called)

    def _warm_up_ddp_buckets(self) -> None:
        """Make one backward pass for nothing, which decides in what groups gradients are sent.

        The groups decide how the sum of three ranks and more is rounded, so a resumed run must have
        those of an uninterrupted one from its first update on.
        """
        with torch.random.fork_rng(devices=self._cuda_devices()):
            batch = self.windows.batch(0).to(self.device)
            torch.autograd.backward(self.forward(batch.ids, **batch.given()).sum())
        for parameter in self.model.parameters():
            parameter.grad = None

    def _cuda_devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def _new_optimizers(self, model: Any) -> dict[str, torch.optim.Optimizer]:
        muon_dtype = torch.bfloat16 if self.bfloat16 else torch.float32
        return build_optimizers(model, self.config, muon_dtype=muon_dtype)

    def _update(self) -> tuple[float, float]:
        """One update of the weights: norm of the gradients before clipping, learning rate."""
        config, step = self.config, self.state.step
        pad, start = self.data.tokenizer.pad, self.data.tokenizer.start
        batches = [next(self.batches) for _ in range(config.accumulate)]
        # Counted before the first backward pass, which is divided by the targets of all.
        own = sum(count_targets(batch.targets, pad) for batch in batches)
        (count,) = self.ranks.all_reduce([float(own)], self.device)
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(batches, start=1):
            batch = batch.to(self.device)
            ids = drop_tokens(batch.ids, config.token_dropout, hidden=pad, kept=start)
            last = number == len(batches)
            with nullcontext() if last else self.ranks.no_sync(self.forward):
                logits = self.forward(ids, **batch.given())
                loss = summed_cross_entropy(
                    logits, batch.targets, pad=pad, label_smoothing=config.label_smoothing
                )
                # Ranks average their gradients; with this factor that is the sum over all targets.
                torch.autograd.backward(loss * self.ranks.world_size / max(count, 1.0))
            total += loss.detach()
        (loss_sum,) = self.ranks.all_reduce([total.item()], self.device)
        limit = config.clip or math.inf
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if not (math.isfinite(loss_sum) and math.isfinite(norm)):
            raise DivergenceError(
                f"training diverged at step {step + 1} (loss {loss_sum / max(count, 1.0)}, "
                f"gradient norm {norm}); start a new run, or one with --init from an earlier step "
                "of this one, with a lower learning_rate or a longer warmup than "
                f"{config.learning_rate:g} and {config.warmup:g}."
            )
        rate = learning_rate(config, step)
        set_learning_rate(self.optimizers, rate)
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._update_ema()
        state = self.state
        state.step += 1
        state.events += int(count)
        state.loss_sum += loss_sum
        state.loss_events += int(count)
        return norm, rate

    @torch.no_grad()
    def _update_ema(self) -> None:
        """Move the running mean of the weights; early on it forgets faster, to start unbiased."""
        if self.ema_model is None or self.config.ema is None:
            return
        step = self.state.step
        decay = min(self.config.ema, (1 + step) / (10 + step))
        for mean, weight in zip(self.ema_model.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(weight, 1 - decay)

    def _log_metrics(self, rate: float, norm: float) -> None:
        state = self.state
        now = time.monotonic()
        speed = (state.events - self.clock_events) / max(now - self.clock, 1e-9)
        self.clock, self.clock_events = now, state.events
        self.last_loss = state.loss_sum / max(state.loss_events, 1)
        state.loss_sum, state.loss_events = 0.0, 0
        self._record(
            {
                "step": state.step,
                "loss": self.last_loss,
                "learning_rate": rate,
                "gradient_norm": norm,
                "events": state.events,
                "events_per_second": round(speed, 1),
                "seconds": round(state.seconds, 2),
            }
        )

    def _record(self, record: dict[str, Any]) -> None:
        if self.ranks.is_main:
            self.run.append_metrics(record)
            self.progress.measured(record)

    def _validation_is_due(self) -> bool:
        step = self.state.step
        here = step % self.config.evaluate_every == 0 or step == self.config.steps
        return here and self.ranks.is_main and "validation" in self.data.splits

    def _validate(self) -> bool:
        """Measure the quick validation NLL; whether it is the best so far."""
        state = self.state
        before = time.monotonic()
        nll = self._quick_nll()
        self.clock += time.monotonic() - before  # the speed is that of training
        self.last_nll, self.measured_step = nll, state.step
        improved = state.best_nll is None or nll < state.best_nll
        if improved:
            state.best_step, state.best_nll = state.step, nll
        self._record({"step": state.step, "validation_nll": nll, "best": improved})
        return improved

    def _quick_nll(self) -> float:
        report = evaluate_nll(
            self.model if self.ema_model is None else self.ema_model,
            self.data,
            "validation",
            context=self.window,
            batch_size=_EVALUATION_BATCH,
            max_windows=self.config.evaluate_windows,
        )
        self.model.train()
        return report.nll

    def _checkpoint_is_due(self) -> bool:
        every, minutes = self.config.checkpoint_every, self.config.checkpoint_minutes
        if every is not None and self.state.step % every == 0:
            return True
        return minutes is not None and time.monotonic() - self.saved_at >= 60.0 * minutes

    def _time_is_up(self, elapsed: float) -> str | None:
        limit = self.config.max_minutes
        over = limit is not None and elapsed >= 60.0 * limit
        return "max_minutes" if over and self.ranks.is_main else None

    def _checkpoint(self) -> None:
        optimizers = optimizer_tensors(self.optimizers, self.model)
        tensors = {f"optimizer/{name}": tensor for name, tensor in optimizers.items()}
        tensors |= gather_generators(self.ranks, self.device)
        if self.ema_model is not None:
            tensors |= {f"weights/{name}": t for name, t in self.model.state_dict().items()}
        if self.ranks.is_main:
            state = self.state
            training = {  # what ``config.json`` of a step says
                "step": state.step,
                "events": state.events,
                "seconds": round(state.seconds, 1),
                "validation_nll": self.last_nll if self.measured_step == state.step else None,
                "config": self.config.to_dict(),
                **self.description,
            }

            def write(folder: Path) -> None:
                judged = self.model if self.ema_model is None else self.ema_model
                write_files(folder, judged, self.data.tokenizer, training=training)
                write_state(folder, state, tensors)

            before = time.monotonic()
            self.run.write_step(state.step, write, best=state.best_step)
            self.clock += time.monotonic() - before
        self.saved_at = time.monotonic()
        self.ranks.barrier()

    def resume(self) -> None:
        """Take up the latest step of the run, if there is one, and forget what came after it.

        `CheckpointError` where the state is damaged, or does not fit the model and settings.
        """
        folder = self.run.latest()
        if folder is None:
            if self.ranks.is_main:
                self.run.rewind(0, best=None)
            return
        state = RunState.read(folder)
        batch_size = int(read_config(folder)["training"]["config"]["batch_size"])
        if state.world_size * batch_size != self.windows.joint_batch_size:
            raise ConfigError(
                f"{self.ranks.world_size} ranks with batch_size={self.config.batch_size}, but "
                f"{self.run.path} was trained by {state.world_size} with batch_size="
                f"{batch_size}; set it so that the product is the same."
            )
        state.world_size = self.ranks.world_size
        groups = read_state(folder)
        try:
            if self.ema_model is None:
                load_weights(self.model, folder)
            else:
                load_weights(self.ema_model, folder)
                self.model.load_state_dict(groups["weights"], strict=True)
            restore_optimizers(self.optimizers, self.model, groups["optimizer"])
            restore_generators(groups["generator"], self.ranks, self.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{folder}: the state of training does not fit this run ({error})."
            ) from error
        self.state = state
        self.ranks.barrier()
        if self.ranks.is_main:
            self.run.rewind(state.step, best=state.best_step)

    def _result(self, reason: str) -> TrainingResult:
        state = self.state
        return TrainingResult(
            run=str(self.run.path),
            step=state.step,
            steps=self.config.steps,
            reason=reason,
            loss=self.last_loss,
            validation_nll=self.last_nll,
            best_step=state.best_step,
            best_nll=state.best_nll,
            events=state.events,
            seconds=round(state.seconds, 1),
            first_nll=self.first_nll,
        )


def summed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, label_smoothing: float = 0.0
) -> Tensor:
    """The sum of the negative log likelihoods of all targets (B, L) that are not ``pad``."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(),  # (B*L, V)
        targets.flatten(),  # (B*L,)
        ignore_index=pad,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def count_targets(targets: Tensor, pad: int) -> int:
    """How many targets are real."""
    return int(torch.count_nonzero(targets != pad))


def drop_tokens(ids: Tensor, share: float, *, hidden: int, kept: int) -> Tensor:
    """Ids (B, L) of which a random share reads ``hidden``, but never those that are ``kept``.

    Source: Gal and Ghahramani 2016, "A theoretically grounded application of dropout in recurrent
    neural networks", section 4.2 (word dropout); here each place is drawn by itself.
    """
    if share == 0.0:
        return ids
    drawn = torch.rand(ids.shape, device=ids.device) < share  # (B, L)
    return ids.masked_fill(drawn & (ids != kept), hidden)
