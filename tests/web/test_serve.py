"""`serve` on the command line: it starts, says where it is, and leaves nothing behind."""

import http.client
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from music_transformer.cli.main import main
from music_transformer.web.run import listen

TIMEOUT_SECONDS = 120

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as on Unix")


@pytest.fixture
def served(checkpoints: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    line = [sys.executable, "-m", "music_transformer", "serve", "--port", "0", "--no-browser"]
    line += ["--checkpoint", str(checkpoints / "piano"), "--device", "cpu"]
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    yield process, address
    process.kill()
    process.communicate()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_deletes_its_folder(
    served: tuple[subprocess.Popen[str], str], tmp_path: Path, sent: signal.Signals
) -> None:
    process, address = served
    place = urllib.parse.urlsplit(address)
    assert (place.scheme, place.hostname) == ("http", "127.0.0.1")
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/api/pages", headers={"Origin": address.rstrip("/")})
    page = connection.getresponse().read().decode().split('"')[3]
    # An open channel does not keep it from ending.
    connection.request("GET", f"/api/pages/{page}/events")
    channel = connection.getresponse()
    assert channel.readline() == b": hello\n"
    assert [path.name.startswith("music-transformer-") for path in tmp_path.iterdir()] == [True]
    process.send_signal(sent)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == (0 if sent == signal.SIGINT else 128 + sent)
    assert errors == ""
    assert list(tmp_path.iterdir()) == []
    channel.close()
    connection.close()


def test_without_a_checkpoint_the_line_names_all_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--no-browser", "--checkpoint", "none", "--device", "cpu"]) == 3
    assert "no checkpoint 'none'; looked for" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        line = ["serve", "--no-browser", "--port", port, "--device", "cpu"]
        assert main([*line, "--checkpoint", str(checkpoints / "piano")]) == 2
    error = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1, port {port}" in error
    assert error.count("\n") == 1


def test_a_font_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-browser", "--soundfont", "none.sf2"]) == 2
    assert "none.sf2: no such file" in capsys.readouterr().err
