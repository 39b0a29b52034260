"""The rows of Table 3 of Huang et al. 2018, trained on MAESTRO.

    python scripts/studies/reproduce_maestro.py --data data/maestro --out out/table3 --minutes 60
    python scripts/studies/reproduce_maestro.py --out out/table3 --rows piano-relative
    python scripts/studies/reproduce_maestro.py --out out/table3 --equal --steps 1000

The paper trained on the Piano-e-Competition's recordings of its time, not on MAESTRO: its numbers
are another corpus, and only the order of rows can be compared. The presets are for a GPU; --equal
is for a CPU. Given again it goes on where it stopped, until every run is finished. It writes
table.md and results.json.
"""

import sys

from reproduce import Row, Table, main

_PLAIN = ("attention_position=none", "input_position=sinusoidal")
_RELATIVE = ("attention_position=relative", "max_distance=256")
_LOCAL = "block=128"

TABLE = Table(
    title="Huang et al. 2018, Table 3 (the paper: Piano-e-Competition; ours: MAESTRO v3)",
    unit="nats per event",
    rows=(
        Row("LSTM", "lstm", 1.969, "lstm-small"),
        Row("LSTM with attention", "lstm-attention", 1.959, "lstm-attention-small"),
        Row("Transformer", "piano-transformer", 1.861, "piano-small", _PLAIN),
        Row("local", "piano-local", 1.863, "piano-small", (*_PLAIN, _LOCAL)),
        Row("relative", "piano-relative", 1.835, "piano-small", _RELATIVE),
        Row("relative local", "piano-relative-local", 1.840, "piano-small", (*_RELATIVE, _LOCAL)),
    ),
    small_shape=(
        "about 4 million parameters, windows of 512, distances up to 256, blocks of 128; "
        "Transformers by Muon, LSTMs by AdamW, at the rates of piano-small and lstm-small"
    ),
    equal_settings=("autocast=off",),
    steps=1000,
    windows=256,
)

if __name__ == "__main__":
    sys.exit(main(TABLE, __doc__ or ""))
