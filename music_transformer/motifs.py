"""The five CC0 motifs, which a clone has in `data/motifs` and an installed package in `assets`."""

from pathlib import Path


def find_motifs() -> dict[str, Path]:
    """The MIDI files of the motifs by name; those of the working folder come before our own."""
    package = Path(__file__).resolve().parent
    for folder in (Path(), package.parent):
        found = sorted((folder / "data" / "motifs").glob("*.mid"))
        if found:
            return {path.stem: path for path in found}
    return {path.stem: path for path in sorted((package / "assets" / "motifs").glob("*.mid"))}
