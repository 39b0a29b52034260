"""The piano roll: a figure without global state that shows what is in the notes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from music_transformer.errors import RenderError
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.render.pianoroll import MOST_INCHES, new_figure, pitch_name, plot_pianoroll

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytest.importorskip("matplotlib", reason="needs the [plot] extra")

THREE = NoteSequence(pitch=[60, 64, 67], velocity=[20, 80, 127], start=[0, 1, 2], end=[1, 2, 4])


def layers(figure: Figure) -> list[Any]:
    """What the pedal holds, and the keys: two collections of bars."""
    return list(figure.axes[0].collections)


def bars(notes: NoteSequence, primer_end: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Left, right and pitch (N, 3) of the key bars, and their colours (N, 4)."""
    _, keys = layers(plot_pianoroll(notes, primer_end=primer_end))
    corners = np.array([path.vertices[:4] for path in keys.get_paths()])  # (N, 4, 2)
    boxes: np.ndarray = np.stack(
        [corners[:, :, 0].min(1), corners[:, :, 0].max(1), corners[:, :, 1].mean(1)], axis=1
    )
    return boxes, np.asarray(keys.get_facecolor())


def darkness(colors: np.ndarray) -> np.ndarray:
    """(N,) 0 white to 1 black."""
    result: np.ndarray = 1 - colors[:, :3].mean(axis=1)
    return result


@pytest.mark.parametrize(
    ("pitch", "name"), [(60, "C4"), (21, "A0"), (108, "C8"), (61, "C#4"), (0, "C-1"), (127, "G9")]
)
def test_the_middle_c_is_c4(pitch: int, name: str) -> None:
    assert pitch_name(pitch) == name


def test_a_bar_is_as_long_and_as_high_as_its_note() -> None:
    boxes, _ = bars(THREE)
    assert np.allclose(boxes, [[0, 1, 60], [1, 2, 64], [2, 4, 67]])


def test_louder_is_darker() -> None:
    _, colors = bars(THREE)
    assert (np.diff(darkness(colors)) > 0.05).all()


def test_primer_and_continuation_have_two_colours_parted_by_the_onset() -> None:
    same = NoteSequence(pitch=[60, 62, 64], velocity=[64] * 3, start=[0, 1, 2], end=[1, 3, 3])
    _, colors = bars(same, primer_end=1.5)
    blue, red = colors[:, 2] > colors[:, 0], colors[:, 0] > colors[:, 2]
    assert blue.tolist() == [True, True, False]
    assert red.tolist() == [False, False, True]


def test_what_the_pedal_holds_is_a_fainter_and_longer_bar_behind() -> None:
    notes = NoteSequence(
        pitch=[60], velocity=[64], start=[0], end=[0.5], pedals=Pedals([0], [0.1], [3.0])
    )
    held, keys = layers(plot_pianoroll(notes))
    assert held.get_paths()[0].vertices[:, 0].max() == 3.0
    assert keys.get_paths()[0].vertices[:, 0].max() == 0.5
    assert held.get_alpha() < keys.get_alpha()
    assert held.get_zorder() < keys.get_zorder()


def test_the_axes_are_named_seconds_and_pitches() -> None:
    [axes] = plot_pianoroll(THREE, title="three.mid").axes
    assert axes.get_xlabel() == "seconds"
    assert axes.get_xlim() == (0.0, 4.0)
    assert axes.get_title(loc="left") == "three.mid"
    assert "C4" in [label.get_text() for label in axes.get_yticklabels()]
    low, high = axes.get_ylim()
    assert low < 60
    assert high > 67


@pytest.mark.parametrize("pitches", [[0], [127], [0, 127], [21, 108], []])
def test_any_range_of_pitches_can_be_drawn(pitches: list[int], tmp_path: Path) -> None:
    n = len(pitches)
    notes = NoteSequence(
        pitch=pitches, velocity=[64] * n, start=[0.0] * n, end=[0.0] * n, end_time=2.0
    )
    figure = plot_pianoroll(notes, primer_end=1.0)
    figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_touches_no_global_state() -> None:
    code = (
        "import sys\n"
        "from music_transformer.notes import NoteSequence\n"
        "from music_transformer.render.pianoroll import plot_pianoroll\n"
        "plot_pianoroll(NoteSequence(pitch=[60], velocity=[64], start=[0], end=[1]))\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(RenderError, match=r"pip install music-transformer\[plot\]"):
        plot_pianoroll(THREE)


def test_bars_have_a_line_and_a_number_each_while_there_are_few() -> None:
    notes = NoteSequence(pitch=[60], velocity=[64], start=[0], end=[8])
    axes = plot_pianoroll(notes, bars=np.arange(0, 8, 2.0)).axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_color() == "#c9c9c4"] == [
        0,
        2,
        4,
        6,
    ]
    many = plot_pianoroll(notes, bars=np.linspace(0, 8, 150)).axes[0]
    assert [text.get_text() for text in many.texts][:3] == ["1", "3", "5"]


def test_no_picture_is_wider_than_a_bound_however_long_the_music_is() -> None:
    days = NoteSequence(pitch=[60, 62], velocity=[80, 80], start=[0, 2e5], end=[1, 2e5 + 1])
    assert plot_pianoroll(days).get_size_inches()[0] == MOST_INCHES
    assert plot_pianoroll(THREE).get_size_inches()[0] == 9
    assert tuple(new_figure(300, 300).get_size_inches()) == (MOST_INCHES, MOST_INCHES)
