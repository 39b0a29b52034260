"""Notes to ears and eyes: sound through a SoundFont, a piano roll as a figure.

The optional libraries ([audio], [plot]) are imported when they are used.
"""

from music_transformer.render.audio import render_audio
from music_transformer.render.pianoroll import plot_pianoroll

__all__ = ["plot_pianoroll", "render_audio"]
