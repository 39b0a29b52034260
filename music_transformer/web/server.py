"""Routes: what the page asks for, checked and handed to the `Studio`; `_Routes` lists them.

The JSON of a primer is ``{"notes": [[start, end, pitch, velocity], ...]}`` or ``{"take": ID}``,
that of takes ``{"task", "model", "primer", "from", "to", "count"}`` and fields of `Settings`; the
task is ``"continue"``, ``"accompany"`` or ``"fill"``, of which from and to are the gap; what is
left out is what the model says, or the default. The takes have the seeds from the one given on;
continuations are composed side by side.

Whatever a user may cause comes back as ``{"error": one line}`` with a 4xx status.
"""

import asyncio
import json
import math
import mimetypes
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from music_transformer.errors import ConfigError, MidiError, MusicTransformerError
from music_transformer.midi.bars import bar_lines
from music_transformer.midi.read import read_midi_bytes
from music_transformer.notes import NoteSequence
from music_transformer.sampling import ASKED_FOR, BOLD, CALM, LOUDNESS, MOST_CANDIDATES, Settings
from music_transformer.web.guard import Guard
from music_transformer.web.models import CONTINUE, Model
from music_transformer.web.studio import MAX_NOTES, Page, Primer, Studio, finished, has_sound
from music_transformer.web.takes import Take, rows_of

STATIC = Path(__file__).parent / "static"
MAX_MIDI_BYTES = 4 << 20
MAX_JSON_BYTES = 2 << 20
#: How long the body of a request may take.
BODY_SECONDS = 60.0
#: A comment on an idle channel, so that nothing in between thinks it dead.
IDLE_SECONDS = 15.0
#: The settings that the page lets a user slide, each with its [low, high, step].
_SLIDERS = {
    one.name: one.metadata["slider"] for one in fields(Settings) if "slider" in one.metadata
}
#: What a take may say of how it is drawn.
_SAID = (*_SLIDERS, "seed", *ASKED_FOR)


def create_app(
    models: Sequence[Model],
    *,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    device: str = "auto",
    soundfont: Path | None = None,
) -> Starlette:
    """The ASGI application; its `Studio` is ``app.state.studio``."""
    # Windows may have another idea of what .js is, and then no browser runs it.
    mimetypes.add_type("text/javascript", ".js")
    studio = Studio(models, device=device, soundfont=soundfont)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        studio.open()
        try:
            yield
        finally:
            await asyncio.to_thread(studio.close)

    routes = _Routes(studio, sound=has_sound(soundfont))
    app = Starlette(
        routes=[
            Route("/", _index),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/pages", routes.add_page, methods=["POST"]),
            Mount("/api/pages/{page}", routes=routes.of_page()),
        ],
        middleware=[Middleware(Guard, host=host, allow_hosts=tuple(allow_hosts))],
        exception_handlers={HTTPException: _complain, MusicTransformerError: _complain},
        lifespan=lifespan,
    )
    app.state.studio = studio
    return app


async def _index(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


async def _complain(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
    return JSONResponse({"error": str(error)}, status_code=422)


class EventStream(Response):
    """Server-sent events from the queue of a page, until either side ends them."""

    media_type = "text/event-stream"

    def __init__(self, studio: Studio, page: Page) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._studio, self._page = studio, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages = self._studio.connect(self._page)
        gone = asyncio.create_task(_disconnected(receive))
        gone.add_done_callback(lambda _: messages.put_nowait(None))
        try:
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            await send(_body(b": hello\n\n"))
            while (chunk := await _next_chunk(messages)) is not None:
                await send(_body(chunk))
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._studio.disconnect(self._page, messages)


class _Routes:
    """The requests of a page."""

    def __init__(self, studio: Studio, *, sound: bool) -> None:
        self._studio = studio
        self._sound = sound

    def of_page(self) -> list[Route]:
        """The routes below ``/api/pages/{page}``."""
        return [
            Route("/events", self.events),
            Route("/primers", self.add_primer, methods=["POST"]),
            Route("/primers/{primer}.wav", self.sound),
            Route("/motifs/{motif}", self.add_motif, methods=["POST"]),
            Route("/models/{model}", self.prepare, methods=["POST"]),
            Route("/takes", self.add_take, methods=["POST"]),
            Route("/kept", self.restore_take, methods=["POST"]),
            Route("/takes/{take}.mid", self.take_midi),
            Route("/takes/{take}.wav", self.sound),
            Route("/takes/{take}", self.remove_take, methods=["DELETE"]),
            Route("/takes/{take}/stop", self.stop_take, methods=["POST"]),
            Route("/takes/{take}/attention", self.attention),
        ]

    async def add_page(self, request: Request) -> Response:
        page = self._studio.add_page()
        return JSONResponse(
            {
                "page": page.id,
                "models": [model.to_dict() for model in self._studio.models.values()],
                "motifs": list(self._studio.motifs),
                "sound": self._sound,
                "sliders": _SLIDERS,
                "marks": list(LOUDNESS),
                "moods": {"calm": CALM, "bold": BOLD},
                "max_bytes": MAX_MIDI_BYTES,
            }
        )

    async def events(self, request: Request) -> Response:
        return EventStream(self._studio, self._page(request))

    async def add_primer(self, request: Request) -> Response:
        page = self._page(request)
        if _media_type(request) == "application/json":
            asked = await _json(request)
            if "take" in asked:
                take = page.takes.get(str(asked["take"]))
                if take is None:
                    raise HTTPException(404, "there is no such take.")
                primer = self._studio.add_primer(page, take.title, finished(take))
                return JSONResponse(_told(primer))
            title, notes = _title(asked.get("title", "played")), _played(asked.get("notes"))
        else:
            title, notes = await _midi_of(request)
        return JSONResponse(_told(self._studio.add_primer(page, title, notes)))

    async def add_motif(self, request: Request) -> Response:
        page, name = self._page(request), request.path_params["motif"]
        path = self._studio.motifs.get(name)
        if path is None:
            raise HTTPException(404, "there is no such motif.")
        notes = read_midi_bytes(await asyncio.to_thread(path.read_bytes), path.name)
        return JSONResponse(_told(self._studio.add_primer(page, name, notes)))

    async def prepare(self, request: Request) -> Response:
        self._page(request)
        await self._studio.prepare(request.path_params["model"])
        return Response(status_code=204)

    async def add_take(self, request: Request) -> Response:
        page = self._page(request)
        asked = await _json(request)
        primer = self._primer(page, asked["primer"]) if asked.get("primer") else None
        cut = None
        if asked.get("to") is not None:
            cut = (_number(asked, "from", 0, 1e6, 0.0), _number(asked, "to", 0, 1e6))
            if not cut[0] < cut[1]:
                raise ConfigError("the part of the motif must end after it begins.")
        first = Settings.from_dict({name: asked[name] for name in _SAID if name in asked})
        count = int(_number(asked, "count", 1, MOST_CANDIDATES, 1))
        takes = self._studio.add_takes(
            page,
            model=str(asked.get("model")),
            primer=primer,
            cut=cut,
            settings=[replace(first, seed=first.seed + number) for number in range(count)],
            task=str(asked.get("task", CONTINUE)),
        )
        told = [{"id": take.id, "title": take.title, "seed": take.settings.seed} for take in takes]
        return JSONResponse({"takes": told})

    async def restore_take(self, request: Request) -> Response:
        page = self._page(request)
        seconds = _number(dict(request.query_params), "primer_seconds", 0, 1e6, 0.0)
        title, notes = await _midi_of(request)
        take = self._studio.restore_take(page, title, notes, seconds)
        return JSONResponse({"id": take.id, "title": take.title})

    async def stop_take(self, request: Request) -> Response:
        self._studio.stop(self._take(request))
        return Response(status_code=204)

    async def remove_take(self, request: Request) -> Response:
        self._studio.remove(self._page(request), self._take(request))
        return Response(status_code=204)

    async def take_midi(self, request: Request) -> Response:
        take = self._take(request)
        path = await self._studio.midi_file(take)
        return FileResponse(path, media_type="audio/midi", filename=f"{take.title}.mid")

    async def sound(self, request: Request) -> Response:
        primer = request.path_params.get("primer")
        source = self._primer(self._page(request), primer) if primer else self._take(request)
        path = await self._studio.sound_file(source)
        return FileResponse(path, media_type="audio/wav", filename=f"{source.title}.wav")

    async def attention(self, request: Request) -> Response:
        query = dict(request.query_params)
        answer = await self._studio.attention(
            self._take(request),
            start=_number(query, "start", 0, 1e6),
            pitch=int(_number(query, "pitch", 0, 127)),
            track=int(_number(query, "track", 0, 127, 0)),
        )
        return JSONResponse(answer)

    def _page(self, request: Request) -> Page:
        page = self._studio.page(request.path_params["page"])
        if page is None:
            raise HTTPException(404, "the server does not know this page any more; reload it.")
        return page

    def _primer(self, page: Page, primer_id: Any) -> Primer:
        primer = page.primers.get(str(primer_id))
        if primer is None:
            raise HTTPException(404, "this motif is not kept any more; load it again.")
        return primer

    def _take(self, request: Request) -> Take:
        take = self._page(request).takes.get(request.path_params["take"])
        if take is None:
            raise HTTPException(404, "there is no such take.")
        return take


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next_chunk(messages: "asyncio.Queue[dict[str, Any] | None]") -> bytes | None:
    """The next message as an event, a comment after a while without one, None at the end."""
    try:
        message = await asyncio.wait_for(messages.get(), IDLE_SECONDS)
    except TimeoutError:
        return b": idle\n\n"
    if message is None:
        return None
    return f"data: {json.dumps(message, separators=(',', ':'))}\n\n".encode()


def _body(chunk: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _body_of(request: Request, limit: int) -> bytes:
    """The body, refused as soon as it is larger than ``limit`` bytes, or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HTTPException(
                        413,
                        f"larger than {limit >> 20} MB, too large for a motif.",
                        headers={"Connection": "close"},
                    )
    except TimeoutError as error:
        raise HTTPException(
            408, "the upload took too long.", headers={"Connection": "close"}
        ) from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the upload was broken off.") from error
    return bytes(body)


async def _midi_of(request: Request) -> tuple[str, NoteSequence]:
    """The title and the notes of a MIDI file that is sent."""
    title = _title(request.query_params.get("title", "motif.mid"))
    data = await _body_of(request, MAX_MIDI_BYTES)
    return title, await asyncio.to_thread(read_midi_bytes, data, title)


async def _json(request: Request) -> dict[str, Any]:
    if _media_type(request) != "application/json":
        raise HTTPException(415, "send application/json.")
    try:
        # NaN and Infinity are no JSON, whatever Python thinks.
        asked = json.loads(await _body_of(request, MAX_JSON_BYTES), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"not JSON: {error}.") from error
    if not isinstance(asked, dict):
        raise HTTPException(400, "not a JSON object.")
    return asked


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _number(
    asked: dict[str, Any], name: str, low: float, high: float, default: float | None = None
) -> float:
    """A number of a request, low to high."""
    value: Any = asked.get(name, default)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        label = name.replace("_", "-")
        raise ConfigError(f"{label} is {value!r:.40}; choose {low:g} to {high:g}.")
    return number


def _title(title: Any) -> str:
    """A file's name as it may be shown: one line, no folders."""
    plain = "".join(c for c in str(title) if c.isprintable()).replace("\\", "/")
    return plain.rpartition("/")[2].strip()[:100] or "motif.mid"


def _played(rows: Any) -> NoteSequence:
    """Notes played on the page, rows [start, end, pitch, velocity]."""
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_NOTES:
        raise MidiError(f"nothing was played, or more than {MAX_NOTES} notes.")
    try:
        start, end, pitch, velocity = zip(*rows, strict=True)
        return NoteSequence(pitch=pitch, velocity=velocity, start=start, end=end)
    except (TypeError, ValueError, OverflowError) as error:
        raise MidiError("the notes are not rows of start, end, pitch and velocity.") from error


def _told(primer: Primer) -> dict[str, Any]:
    """What the page is told of a primer."""
    notes = primer.notes
    return {
        "id": primer.id,
        "title": primer.title,
        "seconds": notes.end_time,
        "notes": rows_of(notes),
        "bars": bar_lines(notes).round(4).tolist(),
        "warnings": [
            what + (f" ({count} times)" if count > 1 else "")
            for what, count in notes.warnings.items()
        ],
    }
