"""Everything the server remembers: open pages, their primers and takes, and the files of both.

A page is one browser tab. When its channel closes its takes stop, and when it stays closed for a
while the page is forgotten and its files are deleted. All methods run in the server's thread, but
for `Page.tell`, which the composing thread calls.
"""

import asyncio
import contextlib
import importlib.util
import re
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from music_transformer.errors import ConfigError, MidiError, RenderError
from music_transformer.midi.bars import part_of
from music_transformer.midi.write import write_midi
from music_transformer.motifs import find_motifs
from music_transformer.notes import NoteSequence
from music_transformer.render.audio import find_soundfont, render_audio
from music_transformer.sampling import Settings
from music_transformer.web.attention import attention_of_note
from music_transformer.web.models import CONTINUE, FILL, Model, Shelf
from music_transformer.web.takes import DONE, RUNNING, STOPPED, Composer, Take

MAX_PAGES = 256
MAX_PRIMERS = 8  # of one page; the oldest goes
MAX_TAKES = 24  # of one page
MAX_WAITING = 48  # of all pages
MAX_NOTES = 20_000
MAX_SECONDS = 300.0
MAX_MOTIF_SECONDS = 3600.0  # of what one take continues; a rest costs events too
MAX_SOUND_SECONDS = 900.0
FORGET_SECONDS = 60.0

Message = dict[str, Any]


@dataclass
class Primer:
    """Notes a take may continue."""

    title: str
    notes: NoteSequence
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))


@dataclass(eq=False)
class Page:
    """One browser tab; `messages` is what it is to hear, of which None ends the channel."""

    loop: asyncio.AbstractEventLoop
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    primers: dict[str, Primer] = field(default_factory=dict)
    takes: dict[str, Take] = field(default_factory=dict)
    messages: "asyncio.Queue[Message | None] | None" = None  # None while the tab is away
    forgetting: asyncio.TimerHandle | None = None

    def tell(self, message: Message) -> None:
        """Send a message; any thread may call this, and it is lost while the tab is away."""
        with contextlib.suppress(RuntimeError):  # the server has ended, its loop is closed
            self.loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message | None) -> None:
        if self.messages is not None:
            self.messages.put_nowait(message)


class Studio:
    """The server's memory, and its temporary folder.

    Whatever a user may cause is a `ConfigError`, a `MidiError` or a `RenderError`.
    """

    def __init__(
        self, models: Sequence[Model], *, device: str = "auto", soundfont: Path | None = None
    ) -> None:
        self.models = {model.name: model for model in models}
        self.motifs = find_motifs()
        self.forget_seconds = FORGET_SECONDS
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._soundfont = soundfont
        self._pages: dict[str, Page] = {}
        self._composer = Composer(Shelf(device))
        self._rendering = asyncio.Semaphore(1)

    def open(self) -> None:
        """Make the folder and start composing."""
        self._temporary = tempfile.TemporaryDirectory(
            prefix="music-transformer-", ignore_cleanup_errors=True
        )
        self._composer.start()

    def close(self) -> None:
        """Stop everything and delete the folder; once more does nothing."""
        self._composer.close()
        for page in list(self._pages.values()):
            if page.forgetting is not None:
                page.forgetting.cancel()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    @property
    def folder(self) -> Path:
        """The temporary folder of an open studio."""
        assert self._temporary is not None
        return Path(self._temporary.name)

    def end_channels(self) -> None:
        """Close the channel of every page, so that the server can end."""
        for page in self._pages.values():
            page._put(None)

    def add_page(self) -> Page:
        """A new page, to be forgotten unless it opens its channel soon."""
        if len(self._pages) >= MAX_PAGES:
            raise ConfigError(f"{MAX_PAGES} pages are open already; close one, and reload this.")
        page = Page(asyncio.get_running_loop())
        self._pages[page.id] = page
        self._forget_later(page)
        return page

    def page(self, page_id: str) -> Page | None:
        """The page with this id."""
        return self._pages.get(page_id)

    def connect(self, page: Page) -> "asyncio.Queue[Message | None]":
        """Open the channel of a page and put into it all that it may have missed."""
        page._put(None)  # an older channel ends
        if page.forgetting is not None:
            page.forgetting.cancel()
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        page.messages = messages
        for take in page.takes.values():
            for message in take.snapshot():
                messages.put_nowait(message)
        return messages

    def disconnect(self, page: Page, messages: "asyncio.Queue[Message | None]") -> None:
        """The tab is gone: its takes stop, and later it is forgotten."""
        if page.messages is not messages:
            return  # a newer channel is open
        page.messages = None
        for take in page.takes.values():
            if take.state in RUNNING:
                self._composer.stop(take)
        self._forget_later(page)

    def add_primer(self, page: Page, title: str, notes: NoteSequence) -> Primer:
        """Keep notes as a primer."""
        primer = Primer(title, _checked(title, notes))
        page.primers[primer.id] = primer
        while len(page.primers) > MAX_PRIMERS:
            oldest = next(iter(page.primers))
            del page.primers[oldest]
            self._delete_files(oldest)
        return primer

    def add_takes(
        self,
        page: Page,
        *,
        model: str,
        primer: Primer | None,
        cut: tuple[float, float] | None,
        settings: Sequence[Settings],
        task: str,
    ) -> list[Take]:
        """Put new takes into the queue, one for each of the settings, which differ in their seeds.

        Args:
            cut: the part of the primer that is meant, in seconds; None for all of it.
            task: what is done with it: `models.CONTINUE`, `ACCOMPANY` or `FILL`.
        """
        if task not in self._model(model).tasks:
            able = [one.name for one in self.models.values() if task in one.tasks]
            raise ConfigError(
                f"{model} cannot {task!s:.20}; choose {' or '.join(able) or 'another'}."
            )
        _check_room(page, len(settings))
        if self._composer.waiting + len(settings) > MAX_WAITING:
            raise ConfigError(f"{MAX_WAITING} takes are waiting; come back when some are done.")
        _check_length(settings[0].asked)
        notes = None if primer is None else primer.notes
        gap = cut if task == FILL else None
        if notes is not None and cut is not None and gap is None:
            notes = part_of(notes, str(cut[0]), str(min(cut[1], notes.end_time)))
        if notes is not None and notes.end_time > MAX_MOTIF_SECONDS:
            raise MidiError(
                f"the motif lasts {notes.end_time:,.0f} s, {MAX_MOTIF_SECONDS:,.0f} are the most; "
                "choose a part of it."
            )
        stem = _stem(primer.title if primer else model)
        if task != CONTINUE:
            if notes is None or (task == FILL and gap is None):
                raise ConfigError(f"there is nothing to {task}; give a motif, and a part of it.")
            _check_length(notes.end_time if gap is None else gap[1] - gap[0])
            stem += "-accompanied" if gap is None else "-filled"
        takes = []
        for one in settings:
            title = f"{stem}-seed-{one.seed}"
            takes.append(Take(self.models[model], notes, one, title, page.tell, task, gap))
            takes[-1].beside = takes[0].beside
        page.takes |= {take.id: take for take in takes}
        self._composer.add(takes)
        return takes

    async def prepare(self, model: str) -> None:
        """Read the weights of a model that will be wanted soon."""
        await asyncio.wrap_future(self._composer.ask(self._model(model), lambda session: None))

    def _model(self, name: str) -> Model:
        if name not in self.models:
            raise ConfigError(f"no model {name!r} is on offer; reload the page.")
        return self.models[name]

    def restore_take(
        self, page: Page, title: str, notes: NoteSequence, primer_seconds: float
    ) -> Take:
        """A finished take that the browser kept, without what its model listened to."""
        _check_room(page)
        _checked(title, notes)
        model = next(iter(self.models.values()))  # nothing is asked of it
        take = Take(model, None, Settings(), _stem(title), page.tell)
        take.primer_seconds = primer_seconds
        page.takes[take.id] = take
        take.keep(notes)
        return take

    def stop(self, take: Take) -> None:
        """Stop a take; what it has composed stays."""
        if take.state in RUNNING:
            self._composer.stop(take)

    def remove(self, page: Page, take: Take) -> None:
        """Stop a take and delete it."""
        self.stop(take)
        page.takes.pop(take.id, None)
        self._delete_files(take.id)

    async def midi_file(self, take: Take) -> Path:
        """The take as a MIDI file."""
        path = self.folder / f"{take.id}.mid"
        if not path.exists():
            await asyncio.to_thread(write_midi, finished(take), path)
        return path

    async def sound_file(self, source: Take | Primer) -> Path:
        """The take or the primer as a WAV file, rendered when it is first asked for."""
        notes = source.notes if isinstance(source, Primer) else finished(source)
        if notes.end_time > MAX_SOUND_SECONDS:
            raise RenderError(f"{notes.end_time:.0f} s are too long to play; cut it.")
        path = self.folder / f"{source.id}.wav"
        async with self._rendering:
            if not path.exists():
                await asyncio.to_thread(render_audio, notes, path, soundfont=self._soundfont)
        return path

    async def attention(self, take: Take, *, start: float, pitch: int, track: int) -> Message:
        """What one note of the take attends to, see `attention_of_note`."""
        if not take.ids:
            raise ConfigError("what it listened to is known of continuations, until a reload.")
        answer = self._composer.ask(
            take.model,
            lambda session: attention_of_note(session, take, start=start, pitch=pitch, track=track),
        )
        return dict(await asyncio.wrap_future(answer))

    def _forget_later(self, page: Page) -> None:
        if page.forgetting is not None:
            page.forgetting.cancel()
        page.forgetting = page.loop.call_later(self.forget_seconds, self._forget, page)

    def _forget(self, page: Page) -> None:
        self._pages.pop(page.id, None)
        for take in page.takes.values():
            self.stop(take)
        for kept in [*page.takes, *page.primers]:
            self._delete_files(kept)

    def _delete_files(self, name: str) -> None:
        for suffix in (".mid", ".wav"):
            (self.folder / f"{name}{suffix}").unlink(missing_ok=True)


def has_sound(soundfont: Path | None = None) -> bool:
    """Whether WAV files can be made here; where not, the page has a synthesizer of its own."""
    if importlib.util.find_spec("midirenderer") is None:
        return False
    try:
        return find_soundfont(soundfont).is_file()
    except RenderError:
        return False


def _check_room(page: Page, count: int = 1) -> None:
    there = len(page.takes)
    if there + count > MAX_TAKES:
        raise ConfigError(f"{there} and {count} takes; {MAX_TAKES} are the most, remove one first.")


def _check_length(seconds: float) -> None:
    if not 1 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"length {seconds:g} s; choose 1 to {MAX_SECONDS:g}.")


def _checked(title: str, notes: NoteSequence) -> NoteSequence:
    """The notes, if there are some, and no more than a page can show."""
    if not len(notes):
        raise MidiError(f"{title}: there are no notes in it.")
    if len(notes) > MAX_NOTES:
        raise MidiError(f"{title}: {len(notes)} notes; {MAX_NOTES} are the most, cut it.")
    return notes


def finished(take: Take) -> NoteSequence:
    """The notes of a take that is done or stopped."""
    if take.state not in (DONE, STOPPED) or take.notes is None or not len(take.notes):
        raise ConfigError("this take has nothing to play yet.")
    return take.notes


def _stem(title: str) -> str:
    """A title as the beginning of a file name, safe on every system."""
    plain = re.sub(r"[^\w-]+", "_", re.sub(r"\.(midi?|kar|rmi)$", "", title, flags=re.I))
    return plain.strip("_")[:60] or "motif"
