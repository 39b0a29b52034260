"""The requests of the page: primers, takes, files, attention; and what is wrong is one line."""

import io
import time
import wave
from pathlib import Path
from typing import Any

import pytest

from music_transformer.midi.read import read_midi_bytes
from music_transformer.web.server import MAX_MIDI_BYTES
from music_transformer.web.studio import MAX_TAKES
from tests.web.conftest import Client, Tab

DONE = ("done", "stopped", "failed")


def key(row: list[Any]) -> tuple[Any, ...]:
    return row[0], row[2], row[4]


def notes_of(tab: Tab, take: str) -> list[list[Any]]:
    """The notes as a page has them after all messages so far."""
    notes: dict[tuple[Any, ...], list[Any]] = {}
    for message in tab.messages:
        if message["type"] == "notes" and message["id"] == take:
            notes |= {key(row): row for row in message["notes"]}
    return sorted(notes.values())


def folder_of(client: Client) -> Path:
    return Path(client.app.state.studio.folder)


def wait_for(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


# Primers


def test_the_page_is_told_what_there_is(tab: Tab) -> None:
    assert [model["name"] for model in tab.offered["models"]] == ["piano", "bach"]
    assert [model["kind"] for model in tab.offered["models"]] == ["performance", "chorale"]
    assert "fur_elise_opening" in tab.offered["motifs"]


def test_a_midi_file_becomes_a_primer(tab: Tab, motifs: Path) -> None:
    data = (motifs / "twinkle_melody.mid").read_bytes()
    status, told = tab.ask("POST", "/primers?title=folder%2Ftwinkle.mid", data)
    assert status == 200
    assert told["title"] == "twinkle.mid"
    assert len(told["notes"]) == 42
    assert told["seconds"] == pytest.approx(28.8, abs=0.1)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF0000WAVE", b"MThd", b"MThd\0\0\0\6\0\0\0\1\1\xe0MTrk\0\0\0\4\0\xff\x2f\0"]
)
def test_a_bad_file_is_one_line(tab: Tab, data: bytes) -> None:
    status, told = tab.ask("POST", "/primers?title=bad.mid", data)
    assert status == 422
    assert told["error"].startswith("bad.mid: ")
    assert "\n" not in told["error"]


def test_a_large_file_is_refused_before_it_is_read(tab: Tab) -> None:
    status, told = tab.ask("POST", "/primers", b"M" * (MAX_MIDI_BYTES + 1))
    assert status == 413
    assert told["error"] == "larger than 4 MB, too large for a motif."


def test_played_notes_become_a_primer(tab: Tab) -> None:
    rows = [[0, 0.5, 60, 80], [0.5, 1.25, 64, 90]]
    status, told = tab.ask("POST", "/primers", {"notes": rows})
    assert status == 200
    assert told["notes"] == [[0.0, 0.5, 60, 80, 0], [0.5, 1.25, 64, 90, 0]]


@pytest.mark.parametrize(
    "notes",
    [
        None,
        [],
        5,
        [5],
        [[0, 1, 60]],
        [[0, 1, 128, 80]],
        [[1, 0, 60, 80]],
        [[0, 1, 60.5, 80]],
        [[0, 1, "x", 80]],
        [[0, 1, None, 80]],
        [[0, 1e999, 60, 80]],
        [[0, 1, 1e30, 80]],
        [[0, 1, [60], 80]],
        [[0, 1, 60, 80], [0, 1, {}, 80]],
    ],
)
def test_played_nonsense_is_one_line(tab: Tab, notes: Any) -> None:
    status, told = tab.ask("POST", "/primers", {"notes": notes})
    assert 400 <= status < 500, told
    assert told["error"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"notes": NaN}', b"[" * 100_000])
def test_what_is_no_json_is_refused(tab: Tab, body: bytes) -> None:
    status, told = tab.ask("POST", "/takes", body, Content_Type="application/json")
    assert status == 400
    assert told["error"].startswith("not ")


# Takes


@pytest.mark.parametrize("model", ["piano", "bach"])
def test_a_take_is_told_while_it_grows_and_is_what_the_file_holds(tab: Tab, model: str) -> None:
    primer = tab.motif()
    take = tab.take(model=model, primer=primer["id"], seconds=3)
    done = tab.until_state(take, *DONE)
    assert done["state"] == "done"
    assert 2.8 < done["seconds"] <= 3 * 1.25 + 0.2  # what is past the length is its end
    states = [m["state"] for m in tab.messages if m["type"] == "take"]
    assert states[-3:] == ["loading", "composing", "done"]
    status, midi = tab.ask("GET", f"/takes/{take}.mid")
    assert status == 200
    notes = read_midi_bytes(midi, "take.mid")
    told = notes_of(tab, take)
    columns = zip(notes.start, notes.end, notes.pitch, strict=True)
    in_file = sorted((round(s * 200), round(e * 200), p) for s, e, p in columns)
    assert in_file == sorted((round(row[0] * 200), round(row[1] * 200), row[2]) for row in told)
    assert sum(row[0] < done["primer_seconds"] for row in told) >= len(primer["notes"])


def test_the_same_seed_gives_the_same_take(tab: Tab) -> None:
    primer = tab.motif()["id"]
    first, second, other = (tab.take(primer=primer, seed=seed) for seed in (4, 4, 5))
    tab.until_state(other, *DONE)
    assert notes_of(tab, first) == notes_of(tab, second)
    assert notes_of(tab, first) != notes_of(tab, other)


def test_what_a_take_does_not_say_the_model_does(tab: Tab) -> None:
    takes = [
        tab.take(model="bach", **said)
        for said in ({}, {"temperature": 1.07, "top_p": 1}, {"temperature": 0.5, "top_p": 0.5})
    ]
    tab.until_state(takes[-1], *DONE)
    silent, same, other = (notes_of(tab, take) for take in takes)
    assert silent == same != other


def test_a_part_of_the_motif_is_continued(tab: Tab) -> None:
    take = tab.take(primer=tab.motif()["id"], **{"from": 0.5, "to": 1.5})
    done = tab.until_state(take, *DONE)
    assert done["primer_seconds"] == pytest.approx(1.0, abs=0.02)


def test_from_nothing(tab: Tab) -> None:
    done = tab.until_state(tab.take(), *DONE)
    assert (done["state"], done["primer_seconds"]) == ("done", 0)


def test_a_take_can_be_the_next_motif(tab: Tab) -> None:
    take = tab.take(primer=tab.motif()["id"])
    tab.until_state(take, "done")
    status, told = tab.ask("POST", "/primers", {"take": take})
    assert status == 200
    assert len(told["notes"]) == len(notes_of(tab, take))


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"model": "none"}, "no model"),
        ({"seconds": 0}, "length 0 s; choose 1 to 300"),
        ({"seconds": "long"}, "seconds='long'; give a number"),
        ({"seconds": True}, "seconds=True; give"),
        ({"seconds": []}, "seconds=[]"),
        ({"temperature": -1}, "temperature=-1"),
        ({"temperature": 5.1}, "temperature=5.1; choose 0 (argmax) to 5"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_p": 1.1}, "top_p=1.1"),
        ({"closeness": 4.1}, "closeness=4.1; choose 0 to 4"),
        ({"pace": 0.2}, "pace=0.2; choose 0.25 to 4"),
        ({"pace": 4.1}, "pace=4.1; choose 0.25 to 4"),
        ({"voices": 0}, "voices=0; choose 1 to 88"),
        ({"voices": 89}, "voices=89; choose 1 to 88"),
        ({"voices": 1.5}, "voices=1.5; give a whole number"),
        ({"low": 60}, "low=60; give a text"),
        ({"high": "H3"}, "high=H3; choose a note"),
        ({"loudness": "loud"}, "loudness=loud; choose one of pp"),
        ({"key": "H"}, "key=H; choose a key"),
        ({"seed": "x"}, "seed='x'; give a whole number"),
        ({"seed": 10**300}, "seed=10000"),
        ({"seed": 2**63 - 1, "count": 2}, "seed=9223372036854775808; choose"),
        ({"count": 0}, "count is 0; choose 1 to 64"),
        ({"count": 25}, "24 are the most"),
        ({"from": 2, "to": 1}, "must end after it begins"),
    ],
)
def test_a_setting_out_of_range_is_one_line(tab: Tab, asked: dict[str, Any], line: str) -> None:
    status, told = tab.ask("POST", "/takes", {"model": "piano", **asked})
    assert status == 422
    assert line in told["error"]


def test_a_part_without_notes_is_one_line(tab: Tab) -> None:
    primer = tab.motif()["id"]
    body = {"model": "piano", "primer": primer, "from": 500, "to": 600}
    status, told = tab.ask("POST", "/takes", body)
    assert status == 422
    assert "\n" not in told["error"]


def test_what_is_not_there_is_not_found(tab: Tab) -> None:
    for method, path, body in (
        ("POST", "/motifs/none", None),
        ("POST", "/takes/none/stop", None),
        ("DELETE", "/takes/none", None),
        ("GET", "/takes/none.mid", None),
        ("GET", "/primers/none.wav", None),
        ("POST", "/primers", {"take": "none"}),
        ("POST", "/takes", {"model": "piano", "primer": "none"}),
    ):
        status, told = tab.ask(method, path, body)
        assert (status, bool(told["error"])) == (404, True), path
    assert tab.client.ask("GET", "/api/pages/none/events")[0] == 404
    assert tab.client.ask("GET", "/static/../server.py")[0] == 404
    assert tab.client.ask("GET", "/static/%2e%2e/server.py")[0] == 404


def test_a_page_has_so_many_takes(tab: Tab) -> None:
    takes = [tab.take(seconds=300) for _ in range(MAX_TAKES)]
    status, told = tab.ask("POST", "/takes", {"model": "piano"})
    assert status == 422
    assert "remove one first" in told["error"]
    for take in takes:
        assert tab.ask("DELETE", f"/takes/{take}")[0] == 204


# Stopping


def test_a_running_take_stops_and_keeps_what_is_there(tab: Tab) -> None:
    take = tab.take(primer=tab.motif()["id"], seconds=300)
    tab.until(lambda m: m["id"] == take and m.get("seconds", 0) > 0)
    assert tab.ask("POST", f"/takes/{take}/stop")[0] == 204
    stopped = tab.until_state(take, *DONE)
    assert stopped["state"] == "stopped"
    assert 0 < stopped["seconds"] < 300
    assert tab.ask("GET", f"/takes/{take}.mid")[0] == 200


def test_takes_wait_for_each_other_and_a_waiting_one_can_be_stopped(tab: Tab) -> None:
    first, second, third = tab.take(seconds=300), tab.take(seconds=300), tab.take()
    queued = tab.until(lambda m: m["id"] == third and m.get("state") == "queued")
    assert queued["ahead"] == 2
    tab.ask("POST", f"/takes/{second}/stop")
    assert tab.until_state(second, *DONE)["state"] == "stopped"
    assert tab.ask("GET", f"/takes/{second}.mid")[0] == 422
    tab.ask("DELETE", f"/takes/{first}")
    assert tab.until_state(third, *DONE)["state"] == "done"


def test_closing_the_page_frees_the_model(client: Client, tab: Tab) -> None:
    other = client.open()
    other.until_state(other.take(seconds=300), "composing")
    other.take(seconds=300)
    other.close()
    assert tab.until_state(tab.take(), *DONE)["state"] == "done"


def test_a_page_that_comes_back_finds_its_takes(client: Client) -> None:
    page = client.open()
    take = page.take()
    page.until_state(take, "done")
    before = notes_of(page, take)
    page.close()
    page.messages.clear()
    page.connect()
    page.until(lambda message: message["type"] == "notes")
    assert notes_of(page, take) == before
    page.close()


def test_a_page_that_stays_away_is_forgotten_with_its_files(serve: Any) -> None:
    client = serve()
    client.app.state.studio.forget_seconds = 0.2
    page = client.open()
    take = page.take()
    page.until_state(take, "done")
    page.ask("GET", f"/takes/{take}.mid")
    folder = folder_of(client)
    assert [path.name for path in folder.iterdir()] == [f"{take}.mid"]
    page.close()
    wait_for(lambda: not any(folder.iterdir()))
    assert client.ask("GET", f"{page.base}/takes/{take}.mid")[0] == 404


def test_a_removed_take_leaves_no_file(client: Client, tab: Tab) -> None:
    take = tab.take()
    tab.until_state(take, "done")
    tab.ask("GET", f"/takes/{take}.mid")
    path = folder_of(client) / f"{take}.mid"
    assert path.exists()
    tab.ask("DELETE", f"/takes/{take}")
    assert not path.exists()


# Sound and attention


def test_a_take_can_be_heard_from_any_second(tab: Tab) -> None:
    pytest.importorskip("midirenderer")
    take = tab.take(primer=tab.motif()["id"])
    done = tab.until_state(take, "done")
    status, sound, headers = tab.client.ask("GET", f"{tab.base}/takes/{take}.wav")
    assert status == 200
    assert headers["content-type"] == "audio/wav"
    assert "c_major_scale-seed-0.wav" in headers["content-disposition"]
    with wave.open(io.BytesIO(sound)) as frames:
        assert frames.getnframes() / frames.getframerate() > done["primer_seconds"] + 1.5
    status, part, _ = tab.client.ask("GET", f"{tab.base}/takes/{take}.wav", Range="bytes=100-199")
    assert (status, part) == (206, sound[100:200])


def test_a_primer_can_be_heard(tab: Tab) -> None:
    pytest.importorskip("midirenderer")
    status, sound = tab.ask("GET", f"/primers/{tab.motif()['id']}.wav")
    assert status == 200
    assert sound.startswith(b"RIFF")


def test_without_a_font_the_page_is_told_and_the_sound_is_one_line(
    serve: Any, tmp_path: Path
) -> None:
    client = serve(soundfont=tmp_path / "none.sf2")
    tab = client.open()
    assert tab.offered["sound"] is False
    status, told = tab.ask("GET", f"/primers/{tab.motif()['id']}.wav")
    assert status == 422
    assert told["error"]
    tab.close()


@pytest.mark.parametrize("model", ["piano", "bach"])
def test_the_attention_of_every_note_is_told_by_notes_before_it(tab: Tab, model: str) -> None:
    take = tab.take(model=model, primer=tab.motif()["id"])
    tab.until_state(take, "done")
    for start, _, pitch, _, track in notes_of(tab, take)[:40:3]:
        query = f"start={start}&pitch={pitch}&track={track}"
        status, told = tab.ask("GET", f"/takes/{take}/attention?{query}")
        assert status == 200, told
        assert (told["layers"], told["heads"]) == (2, 3)
        assert all(note[0] <= start for note in told["notes"])
        sums: dict[tuple[int, int], float] = {}
        for layer, head, row, weight in told["weights"]:
            assert 0 <= row < len(told["notes"])
            sums[layer, head] = sums.get((layer, head), 0) + weight
        assert all(total <= 1.01 for total in sums.values())


def test_attention_is_answered_while_a_take_runs(tab: Tab) -> None:
    take = tab.take(primer=tab.motif()["id"])
    tab.until_state(take, "done")
    running = tab.take(seconds=300)
    tab.until_state(running, "composing")
    start, _, pitch, _, track = notes_of(tab, take)[-1]
    query = f"start={start}&pitch={pitch}&track={track}"
    status, _ = tab.ask("GET", f"/takes/{take}/attention?{query}")
    assert status == 200
    tab.ask("DELETE", f"/takes/{running}")


@pytest.mark.parametrize("query", ["", "start=0", "start=x&pitch=60", "start=0&pitch=1&track=0"])
def test_the_attention_of_no_note_is_one_line(tab: Tab, query: str) -> None:
    take = tab.take(primer=tab.motif()["id"])
    tab.until_state(take, "done")
    status, told = tab.ask("GET", f"/takes/{take}/attention?{query}")
    assert status == 422
    assert told["error"]
