"""The five CC0 motifs, which a clone has in `data/motifs` and an installed package in `assets`."""

from pathlib import Path

from music_transformer.files import checkout


def find_motifs() -> dict[str, Path]:
    """The MIDI files of the motifs by name; those of the working folder come before our own."""
    below = Path("data") / "motifs"
    ours = Path(__file__).resolve().parent / "assets" / "motifs"
    for folder in (below, (checkout() or Path()) / below, ours):
        if found := sorted(folder.glob("*.mid")):
            return {path.stem: path for path in found}
    return {}
