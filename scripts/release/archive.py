"""Pack released checkpoints into the archives that `download NAME` fetches from a release.

    python scripts/release/archive.py checkpoints/bach checkpoints/piano --out out/release

The same files give the same bytes. Upload the archives to the address `RELEASE_URL` of
`datasets/download.py`, and put the lines that are printed into its table.
"""

import argparse
import hashlib
import sys
import zipfile
from pathlib import Path


def pack(folder: Path, out: Path) -> str:
    """Write ``NAME.zip`` into `out`; returns its line of the table."""
    archive = out / f"{folder.name}.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.iterdir()):
            entry = zipfile.ZipInfo(path.name)  # without a date of its own
            entry.create_system = 3  # Unix, wherever this runs
            file.writestr(entry, path.read_bytes())
    content = archive.read_bytes()
    return f'"{folder.name}", {len(content):_}, "{hashlib.sha256(content).hexdigest()}"'


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path, help="folders of checkpoints")
    parser.add_argument("--out", required=True, type=Path, help="folder of the archives")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for folder in args.checkpoints:
        print(pack(folder, args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
