"""Downloading against a server on this machine: resuming, wrong bytes, no network."""

import hashlib
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from music_transformer.checkpoint.hub import fetch_checkpoint
from music_transformer.datasets import download as downloads
from music_transformer.datasets.download import JSB, MAESTRO, Download, copy_file, fetch
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.progress import Progress

CONTENT = bytes(range(256)) * 5000  # more than one chunk
FILE = Download(
    name="small",
    file="small.bin",
    url="http://127.0.0.1:9/never-asked",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    terms="none",
)


class _Server(ThreadingHTTPServer):
    """Serves `content`; the other fields say how well."""

    daemon_threads = True
    content = CONTENT
    ranges = True  # answers a Range with 206
    break_after: int | None = None  # bytes, then the connection is closed
    announce = True  # sends Content-Length

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/small.bin"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path != "/small.bin":
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        body, content = self.server.content, self.server.content
        if asked and self.server.ranges:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                self.send_error(416)
                return
            body = content[begin:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.server.announce:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.break_after])

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    """A server on this machine, asked directly whatever proxy the environment names."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with _Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


class _Count(Progress):
    def __init__(self) -> None:
        self.first, self.total, self.added, self.finished = -1, -1, 0, 0

    def begin(self, total: int, *, done: int = 0, unit: str = "step") -> None:
        self.first, self.total = done, total

    def update(self, count: int = 1) -> None:
        self.added += count

    def end(self) -> None:
        self.finished += 1


def _part(out: Path) -> Path:
    return out.with_name(f".{out.name}.{FILE.sha256[:16]}.part")


def test_a_file_is_fetched_and_nothing_else_is_left(server: _Server, tmp_path: Path) -> None:
    out, meter = tmp_path / "new" / "small.bin", _Count()
    fetch(FILE, out, url=server.url, progress=meter)
    assert out.read_bytes() == CONTENT
    assert [path.name for path in out.parent.iterdir()] == ["small.bin"]
    assert (meter.first, meter.total, meter.added) == (0, len(CONTENT), len(CONTENT))
    assert meter.finished == 1


def test_a_download_that_broke_off_goes_on_where_it_was(server: _Server, tmp_path: Path) -> None:
    out, meter = tmp_path / "small.bin", _Count()
    server.break_after = 300_000
    with pytest.raises(DatasetError, match=r"broke off at 300,000 of 1,280,000 bytes; run it agai"):
        fetch(FILE, out, url=server.url)
    assert not out.exists()
    assert _part(out).read_bytes() == CONTENT[:300_000]
    server.break_after = None
    fetch(FILE, out, url=server.url, progress=meter)
    assert server.asked == [None, "bytes=300000-"]
    assert out.read_bytes() == CONTENT
    assert (meter.first, meter.added) == (300_000, len(CONTENT) - 300_000)
    assert not _part(out).exists()


def test_a_server_that_cannot_go_on_begins_anew(server: _Server, tmp_path: Path) -> None:
    out = tmp_path / "small.bin"
    _part(out).write_bytes(b"of another day" * 100)
    server.ranges = False
    fetch(FILE, out, url=server.url)
    assert server.asked == ["bytes=1400-"]
    assert out.read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_no_network(tmp_path: Path) -> None:
    out = tmp_path / "small.bin"
    _part(out).write_bytes(CONTENT)
    fetch(FILE, out, url="http://127.0.0.1:9/closed")
    assert out.read_bytes() == CONTENT


def test_the_wrong_sum_is_said_and_deleted(server: _Server, tmp_path: Path) -> None:
    out = tmp_path / "small.bin"
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DatasetError, match=r"its sha256 is [0-9a-f]{64}; what came is deleted"):
        fetch(FILE, out, url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_part_is_found_when_the_rest_has_come(server: _Server, tmp_path: Path) -> None:
    out = tmp_path / "small.bin"
    _part(out).write_bytes(b"?" * 1000)
    with pytest.raises(DatasetError, match="deleted, run it again"):
        fetch(FILE, out, url=server.url)
    fetch(FILE, out, url=server.url)
    assert out.read_bytes() == CONTENT


def test_a_file_of_another_size_is_refused_before_it_comes(server: _Server, tmp_path: Path) -> None:
    server.content = b"moved to another place"
    with pytest.raises(DatasetError, match=r"not small\.bin with 1,280,000 bytes.*offers 22 bytes"):
        fetch(FILE, tmp_path / "small.bin", url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_end_is_cut_off(server: _Server, tmp_path: Path) -> None:
    server.content, server.announce = CONTENT + b"more", False
    with pytest.raises(DatasetError, match="it is longer than that"):
        fetch(FILE, tmp_path / "small.bin", url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_a_part_longer_than_the_file_is_thrown_away(server: _Server, tmp_path: Path) -> None:
    out = tmp_path / "small.bin"
    _part(out).write_bytes(CONTENT + b"more")
    fetch(FILE, out, url=server.url)
    assert server.asked == [None]
    assert out.read_bytes() == CONTENT


def test_a_server_that_refuses_the_range_makes_the_next_run_begin_anew(
    server: _Server, tmp_path: Path
) -> None:
    out = tmp_path / "small.bin"
    server.content = CONTENT[:100]
    _part(out).write_bytes(CONTENT[:200])
    with pytest.raises(DatasetError, match="the server refused to go on; run it again"):
        fetch(FILE, out, url=server.url)
    assert not _part(out).exists()


def test_what_the_server_answers_is_said(server: _Server, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"/gone: the server answers 404 Not Found\."):
        fetch(FILE, tmp_path / "small.bin", url=server.url.replace("small.bin", "gone"))


def test_no_network_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:  # bound but not listening: every connection is refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/small.bin"
        with pytest.raises(DatasetError, match=r"no connection \(.*efused.*\); check the network"):
            fetch(FILE, tmp_path / "small.bin", url=url)
    assert list(tmp_path.iterdir()) == []


def test_a_url_of_another_kind_is_refused(tmp_path: Path) -> None:
    for url in ("small.bin", "file:///etc/passwd", "ftp://host/small.bin"):
        with pytest.raises(ConfigError, match="not of http or https"):
            fetch(FILE, tmp_path / "small.bin", url=url)


def test_a_local_copy_is_checked_and_copied(tmp_path: Path) -> None:
    source = tmp_path / "small.bin"
    source.write_bytes(CONTENT)
    copy_file(FILE, source, tmp_path / "out" / "copy.bin")
    assert (tmp_path / "out" / "copy.bin").read_bytes() == CONTENT
    copy_file(FILE, tmp_path, tmp_path / "from-folder.bin")
    assert (tmp_path / "from-folder.bin").read_bytes() == CONTENT
    source.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DatasetError, match="its sha256 is"):
        copy_file(FILE, source, tmp_path / "wrong.bin")
    assert source.exists()
    assert not (tmp_path / "wrong.bin").exists()
    with pytest.raises(DatasetError, match="no such file"):
        copy_file(FILE, tmp_path / "none", tmp_path / "wrong.bin")


def test_the_official_files_are_those_published() -> None:
    assert (MAESTRO.file, MAESTRO.size) == ("maestro-v3.0.0-midi.zip", 58_416_533)
    assert MAESTRO.sha256 == "70470ee253295c8d2c71e6d9d4a815189e35c89624b76d22fce5a019d5dde12c"
    assert (JSB.file, JSB.size) == ("Jsb16thSeparated.json", 1_666_444)
    assert all(download.url.startswith("https://") for download in (JSB, MAESTRO))


@pytest.mark.corpus
def test_the_published_jsb_file_passes_the_check(corpora: Path, tmp_path: Path) -> None:
    copy_file(JSB, corpora / "jsb", tmp_path / "copy.json")


def test_an_archive_of_weights_is_fetched_and_unpacked_and_does_not_stay(
    server: _Server, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    save_file({"w": np.zeros(3, np.float16)}, source / "model.safetensors")
    (source / "config.json").write_text('{"model": {}, "tokenizer": {}, "training": {}}')
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "tiny.zip").write_bytes(b"a file of the user's")
    archive = tmp_path / "source.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in source.iterdir():
            file.write(path, path.name)
    server.content = archive.read_bytes()
    sha256 = hashlib.sha256(server.content).hexdigest()
    weights = Download("tiny", "tiny.zip", server.url, len(server.content), sha256, "none")
    out = tmp_path / "checkpoints" / "tiny"
    fetch_checkpoint(weights, out)
    assert sorted(path.name for path in out.parent.iterdir()) == ["tiny", "tiny.zip"]
    for path in source.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_a_sound_font_is_fetched_in_its_package(
    server: _Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[bytes, Path]] = []
    monkeypatch.setattr(downloads, "SOUNDFONT_PACKAGE", FILE)
    monkeypatch.setattr(
        downloads, "copy_soundfont", lambda source, out: taken.append((source.read_bytes(), out))
    )
    server.break_after = 700_000
    with pytest.raises(DatasetError, match="broke off"):
        downloads.fetch_soundfont(tmp_path / "piano.sf2", url=server.url)
    server.break_after = None
    downloads.fetch_soundfont(tmp_path / "piano.sf2", url=server.url)
    assert server.asked[-1] == "bytes=700000-"
    assert taken == [(CONTENT, tmp_path / "piano.sf2")]
    assert list(tmp_path.iterdir()) == []
