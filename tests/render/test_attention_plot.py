"""Arcs and maps: what is drawn is what the weights say."""

from pathlib import Path

import numpy as np
import pytest

from music_transformer.errors import ConfigError
from music_transformer.notes import NoteSequence
from music_transformer.render.attention_plot import HEAD_COLORS, plot_attention, plot_attention_map

pytest.importorskip("matplotlib", reason="needs the [plot] extra")

FOUR = NoteSequence(pitch=[60, 64, 67, 72], velocity=[80] * 4, start=[0, 1, 2, 3], end=[1, 2, 3, 4])
WEIGHTS = np.array([[0.5, 0.2, 0.0, 0.0], [0.0, 0.1, 0.8, 0.0], [0.005, 0.0, 0.0, 0.0]])


def arcs(heads: list[int] | None = None) -> list[tuple[str, float, float, float]]:
    """Colour, width, and where each arc ends: seconds, pitch."""
    from matplotlib.colors import to_hex

    axes = plot_attention(FOUR, WEIGHTS, query=3, heads=heads).axes[0]
    [lines] = [each for each in axes.collections if type(each).__name__ == "LineCollection"]
    found = []
    for curve, color, width in zip(
        lines.get_segments(), lines.get_colors(), lines.get_linewidths(), strict=True
    ):
        assert curve[0].tolist() == [3.0, 72.0]  # they begin at the query
        found.append((to_hex(color), float(width), *curve[-1].tolist()))
    return found


def test_an_arc_for_each_head_and_note_with_weight_and_none_for_less() -> None:
    ends = {(color, start, pitch) for color, _, start, pitch in arcs()}
    first, second = HEAD_COLORS[:2]
    assert ends == {(first, 0, 60), (first, 1, 64), (second, 1, 64), (second, 2, 67)}


def test_the_heavier_the_wider_and_on_top() -> None:
    widths = [width for _, width, _, _ in arcs()]
    assert widths == sorted(widths)
    assert widths[1] == pytest.approx(2 * widths[0])


def test_only_the_heads_asked_for_are_drawn_in_their_own_colour() -> None:
    assert {color for color, *_ in arcs([1])} == {HEAD_COLORS[1]}


def test_the_legend_says_how_much_is_on_notes() -> None:
    figure = plot_attention(FOUR, WEIGHTS, query=3, title="a.mid, layer 2")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["head 0: 70% on notes", "head 1: 90% on notes", "head 2: 0% on notes"]
    assert figure.axes[0].get_title(loc="left") == "a.mid, layer 2, C5 at 3.00 s"


def test_notes_that_receive_more_are_darker_and_the_query_is_darkest() -> None:
    axes = plot_attention(FOUR, WEIGHTS, query=3, primer_end=1.5).axes[0]
    [bars] = [each for each in axes.collections if type(each).__name__ == "PolyCollection"]
    ink = bars.get_facecolor()[:, 3]
    assert ink[3] == 1 > ink[2] > ink[0] > ink[1]


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8])
def test_a_map_has_a_panel_for_each_head_with_its_weights(heads: int, tmp_path: Path) -> None:
    rows = np.tril(np.random.default_rng(0).random((heads, 7, 7)))
    weights = rows / rows.sum(-1, keepdims=True)
    figure = plot_attention_map(weights, first_event=3, title="a.mid")
    panels = [axes for axes in figure.axes if axes.images and axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == [f"head {i}" for i in range(heads)]
    for axes, weight in zip(panels, weights, strict=True):
        shown = axes.images[0].get_array()
        assert np.allclose(shown.filled(0), weight)
        assert shown.mask[0, 1]  # the future is empty
        assert not shown.mask[1, 0]
        assert list(axes.images[0].get_extent()) == [2.5, 9.5, 9.5, 2.5]
    figure.savefig(tmp_path / "a.png")


def test_heads_and_notes_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"head 3: the model has heads 0 to 2"):
        plot_attention(FOUR, WEIGHTS, query=0, heads=[3])
    with pytest.raises(ConfigError, match="no heads chosen"):
        plot_attention_map(np.ones((2, 1, 1)), heads=[])
    with pytest.raises(ConfigError, match="the piece has 4"):
        plot_attention(FOUR, WEIGHTS[:, :3], query=0)
