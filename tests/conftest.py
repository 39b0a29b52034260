"""Fixtures of every room: where the corpora and the motifs are, and how hypothesis runs."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent

# A shared, busy machine must not fail a test by being slow.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def motifs() -> Path:
    """The folder of the five CC0 motifs."""
    return REPOSITORY / "data" / "motifs"


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder with `jsb/`, `maestro/` and `motifs/`; the test is skipped where there is none."""
    named = os.environ.get("MUSIC_TRANSFORMER_DATA")
    if not (named and Path(named).is_dir()):
        pytest.skip(
            "no corpora: set MUSIC_TRANSFORMER_DATA to the folder that holds jsb/, maestro/"
        )
    return Path(named)
