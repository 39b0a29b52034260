"""Table 2 of Huang et al. 2018 on JSB Chorales: every row trained, beside the paper's numbers.

    python scripts/studies/reproduce_jsb.py --data data/jsb --out out/table2 --minutes 60
    python scripts/studies/reproduce_jsb.py --data data/jsb --out out/table2 --rows jsb-relative
    python scripts/studies/reproduce_jsb.py --data data/jsb --out out/table2 --equal --steps 1000

Given again it goes on where it stopped, until every run is finished. It writes table.md and
results.json. No row has step labels, an addition of ours that would help them all.
"""

import sys

from reproduce import Row, Table, main

_NONE = "attention_position=none"
_CONCAT = "input_position=sinusoidal_concat"
_RELATIVE = ("attention_position=relative", "max_distance=256")

TABLE = Table(
    title="Huang et al. 2018, Table 2, JSB Chorales",
    unit="nats per note",
    rows=(
        Row(
            "Transformer",
            "jsb-transformer",
            0.417,
            "jsb-small",
            (_NONE, "input_position=sinusoidal", "voice_labels=0"),
        ),
        Row(
            "+ concatenated sinusoids",
            "jsb-concat",
            0.398,
            "jsb-small",
            (_NONE, _CONCAT, "voice_labels=0"),
        ),
        Row(
            "+ concatenated sinusoids and labels",
            "jsb-labels",
            0.370,
            "jsb-small",
            (_NONE, _CONCAT),
            "of voices",
        ),
        Row(
            "relative",
            "jsb-relative",
            0.357,
            "jsb-small",
            (*_RELATIVE, "input_position=none", "voice_labels=0"),
        ),
        Row(
            "relative + concatenated sinusoids and labels",
            "jsb-relative-labels",
            0.347,
            "jsb-small",
            (*_RELATIVE, _CONCAT),
        ),
        Row(
            "relative pitch and time",
            "jsb-relational",
            0.335,
            "jsb-small",
            (*_RELATIVE, _CONCAT, "relative_pitch=true", "relative_time=true"),
            "on top of the row before",
        ),
    ),
    small_shape="3 layers, 128 hidden, 128 attention, 512 filter, 4 heads, windows of 256",
    equal_settings=("step_labels=0", "autocast=off"),
    steps=1000,
    known=(("Coconet, chronological", 0.436),),
)

if __name__ == "__main__":
    sys.exit(main(TABLE, __doc__ or ""))
