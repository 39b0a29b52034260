"""`encode` and `decode` on the command line: JSON out, MIDI back, one clear line where it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from music_transformer.cli.main import main
from music_transformer.midi.read import read_midi
from music_transformer.midi.write import write_midi
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

CASES = Path(__file__).parents[1] / "midi" / "cases"
A2 = [376, 60, 305, 64, 305, 67, 355, 188, 192, 195, 305, 381, 65, 305, 193]


@pytest.fixture
def run(capsys):
    """Run one command line; returns exit code, stdout and stderr."""

    def call(*argv):
        code = main([str(a) for a in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def a2(tmp_path):
    """The paper's example A.2 as a file, played with the pedal, after a second of silence."""
    path = tmp_path / "a2.mid"
    notes = NoteSequence(
        pitch=[60, 64, 67, 65],
        velocity=[80, 80, 80, 100],
        start=[1, 1.5, 2, 3.5],
        end=[1.2, 1.7, 2.2, 4],
        pedals=Pedals(channel=[0], start=[1], end=[3]),
    )
    write_midi(notes, path)
    return path


def test_encode_prints_a_json_list_of_ids_with_the_leading_silence(run, a2):
    code, out, err = run("encode", a2)
    assert (code, json.loads(out), err) == (0, [355, *A2], "")


def test_encode_drops_the_leading_silence_when_asked(run, a2):
    assert json.loads(run("encode", a2, "--drop-silence")[1]) == A2


def test_encode_prints_names_when_asked(run, a2):
    names = json.loads(run("encode", a2, "--symbols")[1])
    assert names[:4] == ["TIME_SHIFT 100", "SET_VELOCITY 20", "NOTE_ON 60", "TIME_SHIFT 50"]


def test_encode_keeps_the_pedal_as_events_when_asked(run, a2):
    names = json.loads(run("encode", a2, "--symbols", "--pedal", "events")[1])
    assert names[1:4] == ["PEDAL_ON", "SET_VELOCITY 20", "NOTE_ON 60"]
    assert "PEDAL_OFF" in names


def test_encode_keeps_only_pianos_when_asked(run, tmp_path):
    path = tmp_path / "flute.mid"
    # program 73 on channel 0 plays E4, nothing else does
    track = bytes.fromhex("00c049 00904040 8360804000 00ff2f00".replace(" ", ""))
    header = b"MThd" + bytes.fromhex("00000006 0000 0001 01e0")
    path.write_bytes(header + b"MTrk" + len(track).to_bytes(4, "big") + track)
    assert json.loads(run("encode", path)[1]) == [372, 64, 305, 192]
    code, out, err = run("encode", path, "--piano-only")
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1


def test_encode_warns_on_stderr_of_what_was_survived(run, tmp_path):
    path = tmp_path / "stray.mid"
    # an off that no on came before, then C4 for a quarter
    track = bytes.fromhex("00804000 00903c40 8360803c00 00ff2f00".replace(" ", ""))
    header = b"MThd" + bytes.fromhex("00000006 0000 0001 01e0")
    path.write_bytes(header + b"MTrk" + len(track).to_bytes(4, "big") + track)
    code, out, err = run("encode", path)
    assert (code, json.loads(out)) == (0, [372, 60, 305, 188])
    assert "stray" in err
    assert "stray.mid" in err


def test_encode_and_decode_are_inverse_on_every_motif(run, motifs, tmp_path):
    for path in sorted(motifs.glob("*.mid")):
        for flags in ([], ["--pedal", "events"], ["--tokenizer", "chorale"]):
            ids = tmp_path / "ids.json"
            ids.write_text(run("encode", path, *flags)[1])
            code, out, err = run("decode", ids, "--out", tmp_path / "copy.mid", "--force", *flags)
            assert (code, out, err) == (0, f"{tmp_path / 'copy.mid'}\n", "")
            again = run("encode", tmp_path / "copy.mid", *flags)[1]
            assert again == ids.read_text()


def test_decode_writes_a_chorale_on_four_tracks(run, tmp_path):
    (tmp_path / "ids.json").write_text("[130, 67, 62, 59, 45, 67, 62, 57, 43, 131]")
    out = tmp_path / "chorale.mid"
    assert run("decode", tmp_path / "ids.json", "--out", out, "--tokenizer", "chorale")[0] == 0
    notes = read_midi(out)
    assert sorted(set(notes.track.tolist())) == [0, 1, 2, 3]
    assert ChoraleTokenizer().encode(notes) == [67, 62, 59, 45, 67, 62, 57, 43]


def test_decode_reads_stdin_for_a_dash(tmp_path):
    out = tmp_path / "out.mid"
    command = [sys.executable, "-m", "music_transformer", "decode", "-", "--out", str(out)]
    subprocess.run(command, input=json.dumps(A2).encode(), check=True, capture_output=True)
    assert PerformanceTokenizer().encode(read_midi(out)) == A2


def test_decode_keeps_an_existing_file_unless_forced(run, tmp_path):
    (tmp_path / "ids.json").write_text(json.dumps(A2))
    out = tmp_path / "out.mid"
    out.write_bytes(b"precious")
    code, _, err = run("decode", tmp_path / "ids.json", "--out", out)
    assert (code, out.read_bytes()) == (2, b"precious")
    assert "--force" in err
    assert run("decode", tmp_path / "ids.json", "--out", out, "--force")[0] == 0
    assert len(read_midi(out)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("[1, 2", "no JSON"),
        ('{"ids": []}', "holds a JSON dict, expected a list"),
        ("[60, 188.0]", "188.0 at position 1 is not an id"),
        ("[60, true]", "True at position 1 is not an id"),
        ('["NOTE_ON 60"]', "without --symbols"),
        ("[60, 188, 391]", r"ids.json: id 391 at position 2 is outside the vocabulary 0..390"),
        ("[60, -1]", "id -1 at position 1"),
        ("[60, 123456789012345678901234567890]", "at position 1 is outside"),
        ("[]", "no note among them"),
        ("[355, 389]", "no note among them"),
        ("\ud800", "no JSON"),
    ],
)
def test_decode_says_in_one_line_what_is_wrong_with_the_ids(run, tmp_path, text, message):
    path = tmp_path / "ids.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    code, out, err = run("decode", path, "--out", tmp_path / "out.mid")
    assert (code, out) == (3, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out.mid").exists()


@pytest.mark.parametrize("command", ["encode", "decode"])
def test_a_missing_file_a_folder_and_junk_are_one_line_and_exit_3(run, tmp_path, command):
    junk = tmp_path / "junk.mid"
    junk.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    rest = ["--out", tmp_path / "out.mid"] if command == "decode" else []
    for path in (tmp_path / "missing.mid", tmp_path, junk):
        code, out, err = run(command, path, *rest)
        assert (code, out, len(err.splitlines())) == (3, "", 1)
        assert path.name in err
    assert not (tmp_path / "out.mid").exists()


@pytest.mark.parametrize("command", ["encode", "decode"])
def test_the_pedal_makes_no_sense_for_chorales(run, a2, tmp_path, command):
    rest = ["--out", tmp_path / "out.mid"] if command == "decode" else []
    code, _, err = run(command, a2, *rest, "--tokenizer", "chorale", "--pedal", "events")
    assert code == 2
    assert "does not know 'pedal'" in err


@pytest.mark.parametrize("command", ["encode", "decode"])
def test_help_shows_a_runnable_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"music-transformer {command}" in out.split("examples:")[1]


def test_encode_imports_nothing_heavy_and_answers_at_once(motifs):
    code = (
        "import sys; from music_transformer.cli.main import main; "
        "code = main(sys.argv[1:]); "
        "heavy = {'torch', 'pretty_midi', 'matplotlib', 'mido', 'scipy', 'tqdm'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    command = [sys.executable, "-c", code, "encode", str(motifs / "fur_elise_opening.mid")]
    seconds = []
    for _ in range(5):
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        after = os.times()
        # processor time: the wall clock of a shared machine measures its other users
        seconds.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0] < 391
    assert min(seconds) < 0.5


def test_a_file_whose_notes_cannot_be_encoded_is_named(run, tmp_path):
    starts = [3_000.0 * hour for hour in range(14)]
    notes = NoteSequence(
        pitch=[60] * 14, velocity=[64] * 14, start=starts, end=[start + 1 for start in starts]
    )
    path = write_midi(notes, tmp_path / "long.mid")
    code, out, err = run("encode", path, "--tokenizer", "chorale")
    assert (code, out) == (3, "")
    assert f"error: {path}: the notes last" in err


def test_encode_takes_a_part_by_bars_seconds_or_from_the_end(run, tmp_path):
    waltz = CASES / "08_waltz_time_signature.mid"  # 3/4 at 100 bpm, a quarter each
    for flags, pitches in (
        (["--from", "bar:2", "--to", "bar:3"], [60, 64, 68]),
        (["--from", "0.6", "--to", "1.2"], [64]),
        (["--from", "-0.6"], [68]),
    ):
        ids = json.loads(run("encode", waltz, *flags)[1])
        assert [i for i in ids if i < 128] == pitches
    code, out, err = run("encode", waltz, "--from", "bar:9")
    assert (code, out) == (2, "")
    assert "bar:9: the file has the bars 1 to 4" in err


def test_what_is_decoded_can_be_read_again_or_is_refused(run, tmp_path):
    ids, out = tmp_path / "ids.json", tmp_path / "o.mid"
    code, printed, _ = run("encode", CASES / "unreadable_again.mid")
    assert (code, printed) == (3, "")
    ids.write_text(json.dumps([60, 355, 188, *[355] * 3601, 62, 355, 190]))
    code, printed, err = run("decode", ids, "--out", out)
    assert (code, printed, out.exists()) == (3, "", False)
    assert "hours pass without a note" in err
    assert err.count("\n") == 1
