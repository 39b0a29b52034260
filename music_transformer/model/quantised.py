"""Linear layers in int8, for decoding on a CPU: opt-in, never the default.

Weights become int8, one scale a layer; the inputs are scaled as they come. What is read per event
shrinks by almost four; the logits change a little, so check the NLL of the quantised model
(`evaluate`) before trusting it. Attention, norms, embeddings and tables stay float32.
"""

import copy
import warnings

import torch
from torch import nn

from music_transformer.model.decoder import MusicTransformer


def quantise_linears(model: MusicTransformer) -> MusicTransformer:
    """A copy of a float32 CPU ``model`` whose linear layers multiply in int8.

    It is for reading only: it cannot be trained or saved as a checkpoint.
    """
    twin = copy.deepcopy(model).eval()
    kept = twin.output  # the cache takes its type from this weight, and logits deserve float32
    with warnings.catch_warnings():  # torch.ao is frozen in favour of a package of its own
        warnings.simplefilter("ignore")
        torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            twin.layers, {nn.Linear}, dtype=torch.qint8, inplace=True
        )
    assert twin.output is kept
    return twin
