"""A running server with two models that have learnt nothing, and what talks to it."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.applications import Starlette

from music_transformer.checkpoint import save_checkpoint
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.performance.vocabulary import TIME_SHIFT, VELOCITY
from music_transformer.sampling import Sampling
from music_transformer.web.models import available_models
from music_transformer.web.run import Server, listen
from music_transformer.web.server import create_app

TIMEOUT_SECONDS = 60


class Client:
    """A browser reduced to its requests: the right Host and Origin unless told otherwise."""

    def __init__(self, app: Starlette, port: int) -> None:
        self.app = app
        self.port = port
        self.host = f"127.0.0.1:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def ask(
        self, method: str, path: str, body: bytes | Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON decoded) and headers of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        sent = {"Host": self.host}
        if method not in ("GET", "HEAD"):
            sent["Origin"] = f"http://{self.host}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None and "Content-Length" not in sent:
                sent["Content-Length"] = str(len(body))
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        told = dict(response.getheaders())
        if told.get("content-type", "").startswith("application/json"):
            return response.status, json.loads(data), told
        return response.status, data, told

    def open(self) -> "Tab":
        """A tab with its channel open."""
        status, offered, _ = self.ask("POST", "/api/pages")
        assert status == 200, offered
        return Tab(self, offered)


class Tab:
    """A page with its channel."""

    def __init__(self, client: Client, offered: dict[str, Any]) -> None:
        self.client = client
        self.offered = offered
        self.base = f"/api/pages/{offered['page']}"
        self.messages: list[dict[str, Any]] = []
        self.connect()

    def connect(self) -> None:
        """Open the channel."""
        self._channel = http.client.HTTPConnection(
            "127.0.0.1", self.client.port, timeout=TIMEOUT_SECONDS
        )
        self._channel.request("GET", f"{self.base}/events")
        self._stream = self._channel.getresponse()
        assert self._stream.status == 200

    def close(self) -> None:
        """Close the channel, as a closed tab does."""
        self._stream.close()
        self._channel.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and body of a request of this page."""
        status, told, _ = self.client.ask(method, self.base + path, body, **headers)
        return status, told

    def motif(self, name: str = "c_major_scale") -> dict[str, Any]:
        """A motif of the repository as a primer."""
        status, told = self.ask("POST", f"/motifs/{name}")
        assert status == 200, told
        return dict(told)

    def take(self, **asked: Any) -> str:
        """The id of a new take."""
        status, told = self.ask("POST", "/takes", {"model": "piano", "seconds": 2, **asked})
        assert status == 200, told
        [take] = told["takes"]
        return str(take["id"])

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read the channel up to a message."""
        while True:
            line = self._stream.readline()
            assert line, "the channel was closed"
            if line.startswith(b"data: "):
                message = json.loads(line[6:])
                self.messages.append(message)
                if wanted(message):
                    return message

    def until_state(self, take: str, *states: str) -> dict[str, Any]:
        """Read the channel until a take is in one of the states."""
        return self.until(lambda message: message["id"] == take and message.get("state") in states)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `piano`, `bach`, which says how to draw from it, and `piano-fill`."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, tokenizer, labels in (
        ("piano", PerformanceTokenizer(), 0),
        ("bach", ChoraleTokenizer(), 4),
        ("piano-fill", PerformanceTokenizer(), 0),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = MusicTransformer(
                ModelConfig(
                    vocab_size=tokenizer.vocab_size,
                    n_layers=2,
                    d_model=15,
                    n_heads=3,
                    d_ff=16,
                    context=512 if name == "piano-fill" else 61,
                    voice_labels=labels,
                    anchors=name == "piano-fill",
                )
            )
        if labels == 0:  # waits of 0.2 s at most: a long take has to last until it is stopped
            with torch.no_grad():
                model.output.bias[TIME_SHIFT + 20 : VELOCITY] = -30.0
        own = Sampling(temperature=1.07, top_p=1.0) if name == "bach" else None
        save_checkpoint(folder / name, model, tokenizer, training={}, sampling=own)
    return folder


@pytest.fixture(scope="session")
def serve(checkpoints: Path) -> Iterator[Callable[..., Client]]:
    """Give the function that starts a server; all are stopped in the end."""
    running: list[tuple[Server, threading.Thread]] = []

    def start(*more: str, **options: Any) -> Client:
        names = [str(checkpoints / name) for name in ("piano", "bach", *more)]
        app = create_app(available_models(names), device="cpu", **options)
        listener = listen("127.0.0.1", 0)
        server = Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running.append((server, thread))
        return Client(app, listener.getsockname()[1])

    yield start
    for server, _ in running:
        server.should_exit = True
    for _, thread in running:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def client(serve: Callable[..., Client]) -> Client:
    """One server for all tests of a page."""
    return serve()


@pytest.fixture
def tab(client: Client) -> Iterator[Tab]:
    """A page of its own, closed after the test."""
    page = client.open()
    yield page
    page.close()
