"""`music-transformer serve`: the local web page."""

import argparse
import importlib.util
from pathlib import Path

from music_transformer.errors import ConfigError, RenderError

DESCRIPTION = (
    "Serve a page to this machine's browser: drop a MIDI file or play a motif, watch the "
    "continuation grow, hear it, compare takes, see what the model listened to."
)
EPILOG = """\
examples:
  music-transformer serve
  music-transformer serve --checkpoint checkpoints/my_bach --port 9000 --no-browser

Ctrl-C ends it. Nothing leaves this machine, and nothing is kept: the page's music lies in a
temporary folder that is deleted in the end.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--checkpoint",
        action="append",
        default=[],
        metavar="NAME",
        help="a model to offer, by name or folder; may be repeated (default: all that are found)",
    )
    add("--port", type=int, default=8642, help="0 takes a free one (default: 8642)")
    add("--host", default="127.0.0.1", help="where to listen (default: this machine alone)")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name for it; may be repeated",
    )
    add("--no-browser", action="store_true", help="open no browser")
    add("--soundfont", type=Path, metavar="FONT", help="as in `render`")
    add("--device", default="auto", help="cpu, cuda, mps or auto (default)")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the address goes to stdout."""
    for library in ("starlette", "uvicorn"):
        if importlib.util.find_spec(library) is None:
            raise ConfigError("serve needs the [web] extra: pip install music-transformer[web]")
    if args.soundfont is not None:
        from music_transformer.render.audio import find_soundfont

        try:
            find_soundfont(args.soundfont)
        except RenderError as error:
            raise ConfigError(str(error)) from error

    from music_transformer.checkpoint.hub import select_device
    from music_transformer.cli.output import warn
    from music_transformer.web.models import available_models
    from music_transformer.web.run import is_local, listen, serve, url_of
    from music_transformer.web.server import create_app

    device = str(select_device(args.device))
    app = create_app(
        available_models(args.checkpoint),
        host=args.host,
        allow_hosts=args.allow_host,
        device=device,
        soundfont=args.soundfont,
    )
    listener = listen(args.host, args.port)
    if not is_local(listener):
        warn("others in the network can reach this page too; it asks for no password.")

    def ready() -> None:
        print(url_of(listener), flush=True)
        if not args.no_browser:
            import webbrowser

            webbrowser.open(url_of(listener))

    serve(app, listener, ready)
    return 0
