"""Make a listening test: continuations by every model, the real music beside them, and the page.

`build_study` writes the folder that listeners get; the `Key` it returns says whose clip is whose,
and belongs elsewhere. On the page a listener gets the trials in an order of their own, so that
those who stop early leave different ones out; the answers stay in the browser until they are saved.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError, DatasetError, MusicTransformerError
from music_transformer.generation.continuation import generate
from music_transformer.midi.read import SUFFIXES, read_midi
from music_transformer.notes import NoteSequence
from music_transformer.render.audio import render_audio, with_primer_gap
from music_transformer.sampling import Sampling
from music_transformer.study.analysis import REAL, Key, Trial, name_clips, plan_trials

PAGE = "index.html"
CLIPS = "clips"
Pieces = dict[str, tuple[list[int], list[int]]]  # by name: ids of the primer, of what follows


@dataclass(frozen=True)
class StudySettings:
    """How the clips are made."""

    primer_seconds: float = 10.0  # length of the primers
    events: int = 512  # length of the continuations
    primer_gap: float = 2.5  # seconds of silence between the two
    real: bool = True  # whether how the piece really goes on is one of the sources
    #: What all models are drawn with; what it leaves open each checkpoint says.
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    seed: int = 0  # of the music, the order and the names of the clips
    suffix: str = ".opus"  # of the clips, or `.wav`
    soundfont: Path | None = None  # the instrument; None is the default one


def check_places(out: Path, key: Path, *, force: bool) -> None:
    """Refuse, by ConfigError, to overwrite, or to put the key where the listeners are."""
    if key.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"{key}: the key must not lie in the folder that listeners get.")
    for path in (out, key):
        if path.exists() and not force:
            raise ConfigError(f"{path} exists; add --force to replace it.")
    if out.exists() and not ((out / PAGE).is_file() and (out / CLIPS).is_dir()):
        raise ConfigError(f"{out} is no listening test, so it is left alone; choose another place.")
    if out.exists() and (foreign := _not_ours(out)):
        raise ConfigError(
            f"{foreign[0]}: not of the listening test; move it, then replace the test."
        )
    if key.is_dir():
        raise ConfigError(f"{key}: this is a folder; give --key the name of a file.")


def _not_ours(out: Path) -> list[Path]:
    """What is in the folder of a study and no page or clip."""
    clip = re.compile(r"clip-\d+\.(opus|wav)")
    inside = [path for path in out.iterdir() if path.name not in (PAGE, CLIPS)]
    return inside + [path for path in (out / CLIPS).iterdir() if not clip.fullmatch(path.name)]


def check_tokenizers(sessions: Mapping[str, Session]) -> None:
    """Refuse, by ConfigError, models that cannot go on from the same primer."""
    (first, session), *others = sessions.items()
    for name, other in others:
        if other.tokenizer.to_config() != session.tokenizer.to_config():
            raise ConfigError(
                f"{first} and {name} read different events: only models of one tokenizer can go on "
                "from the same primer."
            )


def split_pieces(
    folder: Path, session: Session, settings: StudySettings, *, limit: int | None = None
) -> tuple[Pieces, list[str]]:
    """Primer and real continuation of at most `limit` MIDI files; a line for each one left out.

    Raises:
        DatasetError: there is no folder, no MIDI file in it, or none is long enough.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder}: give --primers a folder of MIDI files.")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not files:
        raise DatasetError(f"{folder}: no MIDI file in it ({', '.join(SUFFIXES)}).")
    pieces: Pieces = {}
    left_out = []
    for path in files:
        if limit is not None and len(pieces) == limit:
            break
        try:
            pieces[path.name] = session.tokenizer.split_opening(
                read_midi(path), seconds=settings.primer_seconds, events=settings.events
            )
        except ConfigError:
            raise
        except MusicTransformerError as error:
            left_out.append(f"{path.name} is left out: {str(error).removeprefix(f'{path}: ')}")
    if not pieces:
        reasons = "; ".join(left_out)
        raise DatasetError(f"{folder}: no piece is long enough to be a primer ({reasons}).")
    return pieces, left_out


def build_study(
    out: Path,
    sessions: Mapping[str, Session],
    pieces: Pieces,
    settings: StudySettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Key:
    """Compose and play every clip, and write the folder for listeners in one step.

    An earlier one at `out` is replaced. `sessions` are the models by the names of their sources;
    `progress` is called with clips done and clips in all. What comes back listeners must not see.
    """
    sources = (*sessions, *([REAL] if settings.real else []))
    names = list(pieces)
    described = {
        "checkpoints": [str(session.path) for session in sessions.values()],
        "primer_seconds": settings.primer_seconds,
        "events": settings.events,
        "primer_gap": settings.primer_gap,
        "sampling": {
            name: settings.sampling.or_else(session.sampling).resolved().to_dict()
            for name, session in sessions.items()
        },
        "seed": settings.seed,
    }
    key = Key(
        study=out.name,
        sources=sources,
        trials=plan_trials(sources, names, seed=settings.seed),
        clips=name_clips(sources, names, seed=settings.seed, suffix=settings.suffix),
        settings=described,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{out.name}-", suffix=".tmp", dir=out.parent
    ) as temporary:
        made = Path(temporary) / out.name
        (made / CLIPS).mkdir(parents=True)
        clips = _compose(sessions, pieces, sources, settings)
        for done, (source, primer, notes) in enumerate(clips, start=1):
            path = made / CLIPS / key.clips[source][primer]
            render_audio(notes, path, soundfont=settings.soundfont)
            if progress is not None:
                progress(done, len(sources) * len(pieces))
        (made / PAGE).write_text(_page(key), encoding="utf-8")
        if out.exists():
            if foreign := _not_ours(out):
                raise ConfigError(f"{foreign[0]}: has come meanwhile, so nothing is replaced.")
            old = Path(temporary) / "old"  # its page and clips go with the temporary folder
            out.rename(old)
            try:
                made.rename(out)
            except BaseException:
                old.rename(out)
                raise
        else:
            made.rename(out)
    return key


def _compose(
    sessions: Mapping[str, Session], pieces: Pieces, sources: Sequence[str], settings: StudySettings
) -> Iterator[tuple[str, str, NoteSequence]]:
    """Source, primer and notes of every clip, with the silence after the primer."""
    tokenizer = next(iter(sessions.values())).tokenizer
    for name, (primer, real) in pieces.items():
        primer_end = tokenizer.duration_seconds(primer)
        for source in sources:
            if source in sessions:
                notes = generate(
                    sessions[source],
                    primer,
                    events=settings.events,
                    temperature=settings.sampling.temperature,
                    top_p=settings.sampling.top_p,
                    seed=settings.seed,
                    candidates=1,
                ).notes
            else:
                notes = tokenizer.decode([*primer, *real])
            heard = with_primer_gap(notes, primer_end=primer_end, gap=settings.primer_gap)
            yield source, name, heard


def page(study: str, trials: Sequence[Trial], clips: Sequence[tuple[str, str]]) -> str:
    """The HTML of a study: `page.html`, which collects answers offline and knows no sources.

    Of the trials only the names go in; `clips` are the addresses of A and B of each.
    """
    pairs = [
        {"trial": trial.name, "a": a, "b": b} for trial, (a, b) in zip(trials, clips, strict=True)
    ]
    data = json.dumps({"study": study, "trials": pairs}).replace("<", "\\u003c")
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return template.replace("@TITLE@", escape(study)).replace("@DATA@", data)


def _page(key: Key) -> str:
    clips = [
        (f"{CLIPS}/{key.clips[one.a][one.primer]}", f"{CLIPS}/{key.clips[one.b][one.primer]}")
        for one in key.trials
    ]
    return page(key.study, key.trials, clips)
