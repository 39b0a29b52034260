"""`python -m music_transformer` is `music-transformer`."""

import sys

from music_transformer.cli.main import main

if __name__ == "__main__":  # spawned worker processes import this file again
    sys.exit(main())
