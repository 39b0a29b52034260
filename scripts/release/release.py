"""Turn a run into a released checkpoint: half precision, measured on validation, with its README.

    python scripts/release/release.py checkpoints/RUN --data data/maestro --out checkpoints/piano

What is measured is what is released: the weights are rounded to half precision first. A release
that is already there is replaced only when the new one has a lower NLL on the same data, or with
--force. The test split is read only with --test, once, for a final report.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.checkpoint.format import CONFIG, README, read_config, sampling_of
from music_transformer.datasets import PreparedData
from music_transformer.errors import MusicTransformerError
from music_transformer.evaluation.baselines import count_baselines
from music_transformer.evaluation.compare import ShuffledNll, shuffled_nll
from music_transformer.evaluation.nll import NllReport, evaluate_nll
from music_transformer.model import AccompanimentConfig, RNNConfig
from music_transformer.sampling import Sampling

LICENSES = {
    "maestro": (
        "[MAESTRO v3](https://magenta.tensorflow.org/datasets/maestro) (Hawthorne et al., ICLR "
        "2019), official split",
        "CC BY-NC-SA 4.0, like the data: attribution, non-commercial use only, share alike",
    ),
    "jsb": (
        "[JSB Chorales](https://github.com/czhuang/JSB-Chorales-dataset) on sixteenths, 229 / 76 / "
        "77 pieces; the music is in the public domain, the data set states no licence",
        "MIT, like the code",
    ),
}
LARGEST_MIB = 15.0
_LARGEST_BYTES = int(LARGEST_MIB * 2**20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", help="the run, or any checkpoint")
    parser.add_argument("--data", required=True, help="prepared data to measure on")
    parser.add_argument("--out", required=True, type=Path, help="folder of the release")
    parser.add_argument("--hardware", default="two cores of a shared CPU machine")
    parser.add_argument("--hours", type=float, help="all hours of training, over all stages")
    parser.add_argument("--events", type=int, help="all events trained on, over all stages")
    parser.add_argument("--test", action="store_true", help="measure the test split too, once")
    parser.add_argument("--force", action="store_true", help="replace a better release")
    parser.add_argument(
        "--split-files",
        action="store_true",
        help=f"let a release be larger than {LARGEST_MIB:g} MiB, in files of at most that",
    )
    parser.add_argument(
        "--sampling",
        nargs="*",
        metavar="KEY=VALUE",
        help="how to draw where a call does not say, as temperature=1.05 top_p=1; nothing after "
        "it: the defaults of the package (without the flag: what the release that is there says, "
        "else what the checkpoint says)",
    )
    args = parser.parse_args()

    try:
        sampling = _sampling(args.sampling, args.out)
    except MusicTransformerError as error:
        sys.exit(str(error))
    data = PreparedData.open(args.data)
    with tempfile.TemporaryDirectory() as folder:
        rounded = load_checkpoint(args.checkpoint, "cpu").save(
            Path(folder) / args.out.name, max_file_bytes=_LARGEST_BYTES
        )
        size = sum(path.stat().st_size for path in rounded.iterdir()) / 2**20
        if size > LARGEST_MIB and not args.split_files:
            sys.exit(
                f"{args.checkpoint}: {size:.1f} MiB in half precision; at most {LARGEST_MIB:g}, or "
                "more in several files with --split-files."
            )
        session = load_checkpoint(rounded, "cpu")
        if sampling is not None:
            session = dataclasses.replace(session, sampling=sampling)
        splits = ["validation", "test"] if args.test else ["validation"]
        measured: dict[str, tuple[NllReport, dict[str, float]]] = {}
        exchanged: dict[str, ShuffledNll] = {}
        for split in splits:
            with tqdm(desc=split, unit="window") as bar:

                def report(done: int, total: int, bar: Any = bar) -> None:
                    bar.total = total
                    bar.update(done - bar.n)

                nll_report = evaluate_nll(session.model, data, split, progress=report)
                if data.tokenizer.kind == "accompaniment":
                    exchanged[split] = shuffled_nll(
                        session.model, data, nll_report, progress=report
                    )
            measured[split] = (nll_report, count_baselines(data, split))
        nll = measured["validation"][0].nll
        before = _released_nll(args.out, data.checksum)
        if before is not None and before <= nll and not args.force:
            print(f"kept {args.out}: {before:.4f} is not above the new {nll:.4f}")
            return 0
        session.training["released"] = {
            "data_checksum": data.checksum,
            "hours": args.hours,
            "events": args.events,
            **{
                split: {
                    key: value
                    for key, value in dataclasses.asdict(one).items()
                    if key != "by_piece"
                }
                for split, (one, _) in measured.items()
            },
        }
        for split, one in exchanged.items():
            session.training["released"][split] |= one.to_dict()
        (rounded / README).unlink()
        final = session.save(rounded, max_file_bytes=_LARGEST_BYTES)
        (final / README).write_text(
            _readme(args, data, session.training, measured, exchanged, session.model),
            encoding="utf-8",
        )
        args.out.mkdir(parents=True, exist_ok=True)
        for path in final.iterdir():
            shutil.copyfile(path, args.out / f".{path.name}.new")
        for path in final.iterdir():
            (args.out / f".{path.name}.new").replace(args.out / path.name)
        for old in args.out.glob("model*.safetensors*"):  # of a release in more or fewer files
            if not (final / old.name).exists():
                old.unlink()
    print(f"{args.out}: validation NLL {nll:.4f}, {size:.1f} MiB")
    return 0


def _released_nll(folder: Path, checksum: str) -> float | None:
    """Validation NLL of the release that is there, where it was measured on the same data."""
    if not (folder / CONFIG).is_file():
        return None
    released = read_config(folder)["training"].get("released", {})
    if released.get("data_checksum") != checksum:
        return None
    return float(released["validation"]["nll"])


def _sampling(asked: Sequence[str] | None, released: Path) -> Sampling | None:
    """What is asked for, else what the release that is there says; None where neither says.

    Raises:
        ConfigError: it makes no sense.
        CheckpointError: the release is damaged.
    """
    if asked is not None:
        pairs = [text.partition("=") for text in asked]
        return Sampling.from_dict({key: _value(text) for key, _, text in pairs})
    if not (released / CONFIG).is_file():
        return None
    config = read_config(released)
    return sampling_of(config) if "sampling" in config else None


def _value(text: str) -> Any:
    """A number, or the text that should have been one."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shape(config: Any) -> str:
    """The sizes and the scheme of a model in a few words."""
    if isinstance(config, RNNConfig):
        return (
            f"{config.n_layers} layers of LSTM, d_model {config.d_model}, d_hidden "
            f"{config.d_hidden}, attention {config.attention}"
        )
    if isinstance(config, AccompanimentConfig):
        return (
            f"encoder of {config.n_encoder_layers} layers, d_encoder {config.d_encoder}; decoder "
            f"of {config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads, d_ff "
            f"{config.d_ff}; attention_position {config.attention_position}, cross_position "
            f"{config.cross_position}, source_context {config.source_context}"
        )
    names = ("relative_pitch", "relative_time", "held_labels", "interval_output")
    further = [name for name in names if getattr(config, name, False)]
    return ", ".join(
        [
            f"{config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads, d_ff "
            f"{config.d_ff}, attention_position {config.attention_position}, max_distance "
            f"{config.distances}",
            *further,
            f"input_position {config.input_position}",
        ]
    )


def _readme(
    args: argparse.Namespace,
    data: PreparedData,
    training: dict[str, Any],
    measured: dict[str, tuple[NllReport, dict[str, float]]],
    exchanged: dict[str, ShuffledNll],
    model: Any,
) -> str:
    corpus = str(data.meta.get("corpus", "unknown"))
    source, license_ = LICENSES.get(corpus, (corpus, "that of its data"))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    unit = "note" if data.tokenizer.kind == "chorale" else "event"
    rows = []
    for split, (report, baselines) in measured.items():
        error = "" if report.standard_error is None else f" ± {report.standard_error:.3f}"
        rows.append(
            f"| {split} | **{report.nll:.4f}** | {report.mean_over_pieces:.3f}{error} | "
            + ", ".join(f"{name} {value:.3f}" for name, value in baselines.items())
            + " |"
        )
    protocol = measured["validation"][0].protocol
    folder = "accompaniment" if exchanged else corpus
    events = args.events or training.get("events", 0)
    hours = args.hours or training.get("seconds", 0) / 3600
    return "\n".join(
        [
            f"# {args.out.name}",
            "",
            f"- **Data**: {source}.",
            f"- **Licence of the weights**: {license_}.",
            f"- **Model**: {parameters:,} parameters in half precision; {_shape(model.config)}, "
            f"context {model.config.context}.",
            f"- **Training**: {events:,} events in {hours:.1f} hours on {args.hardware}; every "
            "setting is in `config.json`.",
            "",
            f"NLL in nats per {unit}, whole split, windows of {protocol['context']} every "
            f"{protocol['stride']}; START, END and padding are not counted. Validation chose.",
            "",
            f"| split | NLL per {unit} | mean over pieces | baselines, counted on train |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            *_listening(exchanged),
            "```",
            f"music-transformer evaluate --checkpoint {args.out.name} --data data/{folder} "
            "--split validation",
            "```",
            "",
        ]
    )


def _listening(exchanged: dict[str, ShuffledNll]) -> list[str]:
    """What the right melody is worth to a model of accompaniments; nothing for another."""
    lines = []
    for split, one in exchanged.items():
        difference = one.difference
        lines += [
            f"With the melodies of other pieces {one.nll:.4f} on {split}: the right melody is "
            f"worth {difference.mean:.4f} nats per event, 95 % interval {difference.low:.4f} to "
            f"{difference.high:.4f} over {difference.pieces} pieces.",
            "",
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
