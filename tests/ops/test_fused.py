"""The fused kernel, in Triton's interpreter on a CPU, is the reference; elsewhere it is skipped."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from music_transformer.errors import ConfigError
from music_transformer.ops.fused import fused_works
from music_transformer.ops.relative import relative_attention

CHECK = """
import torch
from music_transformer.ops.fused import fused_attention, fused_works
from music_transformer.ops.reference import reference_attention

assert fused_works("cpu", 5, torch.float32)
generator = torch.Generator().manual_seed(1)
for queries, before, rows, tables, block in (
    (1, 0, 3, 3, None), (37, 0, 37, 3, None), (37, 13, 11, 1, None), (71, 0, 99, 3, 7),
    (29, 41, 64, 3, 17), (67, 0, 67, 3, 101),
):
    shapes = [(2, 3, queries, 5), (2, 3, queries + before, 5), (2, 3, queries + before, 5)]
    inputs = [torch.randn(s, generator=generator).requires_grad_() for s in shapes]
    inputs.append(torch.randn(1, tables, rows, 5, generator=generator).requires_grad_())
    weight = torch.randn(shapes[0], generator=generator)
    results = []
    for function in (fused_attention, reference_attention):
        out = function(*inputs, first=0, block=block)
        results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
    for actual, expected in zip(*results, strict=True):
        # float32: sums of up to a hundred terms, in another order
        torch.testing.assert_close(actual, expected, atol=2e-4, rtol=1e-4)
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed (it comes with torch for CUDA; 290 MB)",
)
def test_the_kernel_is_the_reference_in_outputs_and_gradients() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # read when Triton is imported
    done = subprocess.run(
        [sys.executable, "-c", CHECK], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("d_head", [32, 64])
def test_the_kernel_works_on_the_gpu(d_head: int) -> None:
    assert fused_works("cuda", d_head, torch.float32)


def test_without_the_interpreter_the_kernel_is_not_for_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    fused_works.cache_clear()
    assert not fused_works("cpu", 64, torch.float32)
    with pytest.raises(ConfigError, match="needs Triton and a CUDA device"):
        relative_attention(
            *torch.ones(4, 1, 1, 3, 64)[:3], torch.ones(1, 3, 64), implementation="fused"
        )
