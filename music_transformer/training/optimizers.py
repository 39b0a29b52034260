"""The optimizers and their learning rate: AdamW for all, or Muon for the hidden matrices.

Hidden matrices are the weights of `nn.Linear` except ``output``, as every model names the layer
that gives the logits. Embeddings, tables of relative positions, norms and biases are AdamW's,
without weight decay.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from music_transformer.training.config import TrainingConfig

NEWTON_SCHULZ_STEPS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """A matrix (..., rows, columns) with the singular vectors of this one, singular values near 1.

    ``dtype`` is of the products; the result has the type of ``matrix``.
    """
    wide = matrix.shape[-2] <= matrix.shape[-1]
    x: Tensor = matrix if wide else matrix.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # singular values <= 1
    x = x.to(dtype)
    a, b, c = _QUINTIC
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    x = x.to(matrix.dtype)
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by five Newton-Schulz steps (Jordan et al. 2024), for matrices.

    Its update is scaled by ``0.2 sqrt(max(rows, columns))`` to the size of AdamW's (Liu et al.
    2025, "Muon is scalable for LLM training"), so one rate serves both. `torch.optim.Muon` always
    computes in bfloat16, which is far slower than float32 on many CPUs; here the type is chosen.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient; matrices of one shape are done as one batch."""
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for parameters in shapes.values():
                self._step_together(parameters, group)

    def _step_together(self, parameters: list[nn.Parameter], group: dict[str, float]) -> None:
        momentum = group["momentum"]
        nesterov = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            assert parameter.grad is not None
            state["momentum"].lerp_(parameter.grad, 1 - momentum)
            nesterov.append(parameter.grad.lerp(state["momentum"], momentum))
        updates = orthogonalize(torch.stack(nesterov), dtype=self.dtype)  # (n, rows, columns)
        size = 0.2 * max(updates.shape[-2:]) ** 0.5
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"] * size)


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of linear layers, but for those tied to an embedding and of ``model.output``."""
    return _linear_weights(model, but=model.output)


def decay_parameters(model: nn.Module) -> list[nn.Parameter]:
    """What weight decay shrinks: weights of linear layers, none tied, and of LSTMs.

    Those of an LSTM are AdamW's under any optimizer: each stacks the matrices of four gates.
    """
    lstms = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    gates = [p for lstm in lstms for p in lstm.parameters() if p.dim() == 2]
    return _linear_weights(model) + gates


def _linear_weights(model: nn.Module, but: object = None) -> list[nn.Parameter]:
    tied = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not but]
    untied = [layer for layer in layers if id(layer.weight) not in tied]
    return [layer.weight for layer in untied]  # type: ignore[misc]  # typed as a Tensor


def build_optimizers(
    model: nn.Module, config: TrainingConfig, *, muon_dtype: torch.dtype
) -> dict[str, torch.optim.Optimizer]:
    """The optimizers by name; together they hold every parameter exactly once."""
    muon = hidden_matrices(model) if config.optimizer == "muon" else []
    taken = {id(parameter) for parameter in muon}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    decay = {id(parameter) for parameter in decay_parameters(model)}
    groups = [
        {"params": [p for p in rest if id(p) in decay], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if id(p) not in decay], "weight_decay": 0.0},
    ]
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    optimizers: dict[str, torch.optim.Optimizer] = {
        "adamw": torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=config.betas,
            fused=fused,
        )
    }
    if muon:
        optimizers["muon"] = Muon(
            muon,
            lr=config.learning_rate,
            momentum=config.muon_momentum,
            weight_decay=config.weight_decay,
            dtype=muon_dtype,
        )
    return optimizers


def warmup_steps(config: TrainingConfig) -> int:
    """Steps of warm-up: ``warmup`` itself, or that fraction of all steps where it is below 1."""
    if config.warmup < 1.0:
        return round(config.warmup * config.steps)
    return min(round(config.warmup), config.steps)


def cooldown_start(config: TrainingConfig) -> int:
    """The first step at which ``wsd`` is below its plateau."""
    return config.steps - round(config.cooldown * config.steps)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """The rate of the update number ``step``, counted from 0.

    Linear from near 0 over the warm-up; then ``cosine`` falls to ``final_fraction`` of the peak at
    the last step, ``wsd`` stays and falls there linearly over the last ``cooldown`` of the steps.
    """
    warmup = warmup_steps(config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    start = warmup if config.schedule == "cosine" else max(warmup, cooldown_start(config))
    if step < start:
        return config.learning_rate
    progress = min((step - start + 1) / max(config.steps - start, 1), 1.0)
    shape = (
        0.5 * (1.0 + math.cos(math.pi * progress)) if config.schedule == "cosine" else 1 - progress
    )
    last = config.final_fraction
    return config.learning_rate * (last + (1.0 - last) * shape)


def set_learning_rate(optimizers: dict[str, torch.optim.Optimizer], rate: float) -> None:
    """Give every group of every optimizer the rate of this step."""
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = rate


def optimizer_tensors(
    optimizers: dict[str, torch.optim.Optimizer], model: nn.Module
) -> dict[str, Tensor]:
    """The whole state of the optimizers as named tensors: ``adamw/exp_avg/layer.weight``."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{kind}/{key}/{names[id(parameter)]}": value
        for kind, optimizer in optimizers.items()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizers(
    optimizers: dict[str, torch.optim.Optimizer], model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` gave."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        kind, key, parameter_name = name.split("/", 2)
        parameter = parameters[parameter_name]
        value = tensor if key == "step" else tensor.to(parameter.device)
        optimizers[kind].state[parameter][key] = value.clone()
