"""What must not keep the server, or its memory, for ever."""

import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from tests.web.conftest import TIMEOUT_SECONDS, Client, Tab

SOAK = int(os.environ.get("MUSIC_TRANSFORMER_SOAK", "0"))  # takes


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127"])
def test_a_request_that_is_half_sent_ends(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("music_transformer.web.run.HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", serve().port), timeout=TIMEOUT_SECONDS) as one:
        one.sendall(sent)
        assert one.recv(100) == b""


def test_an_upload_that_does_not_go_on_ends(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("music_transformer.web.server.BODY_SECONDS", 0.2)
    page = client.ask("POST", "/api/pages")[1]["page"]
    head = f"POST /api/pages/{page}/primers HTTP/1.1\r\nHost: {client.host}\r\n"
    head += f"Origin: http://{client.host}\r\nContent-Length: 99\r\n\r\nMThd"
    with socket.create_connection(("127.0.0.1", client.port), timeout=TIMEOUT_SECONDS) as one:
        one.sendall(head.encode())
        assert one.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_motif_of_days_is_refused_and_a_part_of_it_is_not(tab: Tab, tmp_path: Path) -> None:
    start = [3000.0 * index for index in range(300)]
    notes = NoteSequence(
        pitch=[60] * 300, velocity=[64] * 300, start=start, end=[one + 1 for one in start]
    )
    status, primer = tab.ask(
        "POST", "/primers", write_midi(notes, tmp_path / "days.mid").read_bytes()
    )
    assert status == 200, primer
    status, told = tab.ask("POST", "/takes", {"model": "piano", "primer": primer["id"]})
    assert (status, "choose a part of it" in told["error"]) == (422, True)
    tab.take(primer=primer["id"], **{"from": 0, "to": 10})


@pytest.mark.skipif(SOAK < 40, reason="MUSIC_TRANSFORMER_SOAK=200 asks for it")
def test_many_takes_leave_memory_as_it_was(tab: Tab) -> None:
    def some(count: int) -> tuple[int, float]:
        for number in range(count):
            primer = tab.motif()["id"] if number % 2 else None
            take = tab.take(seconds=1, primer=primer)
            tab.until_state(take, "done")
            for suffix in ("mid", "wav") if number % 10 == 0 else ():
                assert tab.ask("GET", f"/takes/{take}.{suffix}")[0] == 200
            assert tab.ask("DELETE", f"/takes/{take}")[0] == 204
        tab.messages.clear()
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(gc.get_objects()), pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    some(10)
    quarters = [some(SOAK // 4) for _ in range(4)]
    sys.stdout.write("".join(f"{count:,} objects, {mib:.1f} MiB\n" for count, mib in quarters))
    assert quarters[-1][0] - quarters[0][0] < SOAK // 2  # not one object stays of each
    assert quarters[-1][1] - quarters[0][1] < 16
