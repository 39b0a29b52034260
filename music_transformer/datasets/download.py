"""Corpora and a piano from their sources, weights from a release: fetched once and checked.

A download is written to ``.NAME.SUM.part`` beside its destination (SUM begins its sha256): one that
breaks off goes on from there next time (HTTP Range). It gets its name only when its size and sha256
are right. Nothing else in the package opens a connection.
"""

import hashlib
import http.client
import io
import os
import re
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from music_transformer.errors import ConfigError, DatasetError
from music_transformer.files import atomic_path, errors_name
from music_transformer.progress import Progress

TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 18  # bytes


@dataclass(frozen=True)
class Download:
    """A file of an official source; `terms` is what a user has to know before using it."""

    name: str
    file: str
    url: str
    size: int
    sha256: str
    terms: str


JSB = Download(
    name="jsb",
    file="Jsb16thSeparated.json",
    url="https://raw.githubusercontent.com/czhuang/JSB-Chorales-dataset/"
    "9a7f733ddb4ed91f48da64ac7f0f621c34aadd4d/Jsb16thSeparated.json",
    size=1_666_444,
    sha256="79294cc374f9252e95ef4b703161524c1c53dc1f712c236f00f1c1f5d54af5a7",
    terms="Bach's music is in the public domain; for this encoding no licence is stated.",
)
MAESTRO = Download(
    name="maestro",
    file="maestro-v3.0.0-midi.zip",
    url="https://storage.googleapis.com/magentadata/datasets/maestro/v3.0.0/maestro-v3.0.0-midi.zip",
    size=58_416_533,
    sha256="70470ee253295c8d2c71e6d9d4a815189e35c89624b76d22fce5a019d5dde12c",
    terms="CC BY-NC-SA 4.0: name the source, no commercial use, share alike; so are weights and "
    "ids made from it.",
)
DOWNLOADS = {download.name: download for download in (JSB, MAESTRO)}

_MIT = "FluidR3 GM, (c) 2000-2002, 2008 Frank Wen: MIT."
#: The package of Debian that holds `PIANO_SOUNDFONT`.
SOUNDFONT_PACKAGE = Download(
    name="piano-soundfont",
    file="fluid-soundfont-gm_3.1-5.3_all.deb",
    url="https://deb.debian.org/debian/pool/main/f/fluid-soundfont/"
    "fluid-soundfont-gm_3.1-5.3_all.deb",
    size=119_610_208,
    sha256="6f531493ac4e4d9772fd96b2488ea1790af81c196135fbdd25997da0781fc60e",
    terms=_MIT,
)
PIANO_SOUNDFONT = Download(
    name="piano-soundfont",
    file="FluidR3_GM.sf2",
    url=SOUNDFONT_PACKAGE.url,
    size=148_398_306,
    sha256="74594e8f4250680adf590507a306655a299935343583256f3b722c48a1bc1cb0",
    terms=_MIT,
)

#: Where released weights are published, one archive for each checkpoint.
RELEASE_URL = "https://github.com/music-transformer/music-transformer/releases/download/weights-1"
_FREE = "MIT, like the code."
_NON_COMMERCIAL = "CC BY-NC-SA 4.0, like the data (MAESTRO): not for commercial use."
_WEIGHTS = """
bach                10183377 2923be3ad04edebd5d66ffe598400ca177cb70c34c3d2009865f04452d393c6a
piano               17009844 ff5207f38d3a2cd37b7daf6fbffdb7287e16ab264c3a9577471479d569fef691
piano-accompaniment 15067935 792c5cec66b8af4f20d68b764e75f6acbd2d0e1b9ae5964d69d2c6b19adde1d7
piano-fill          12222564 199319ffadf8e0d69f588b3106b04653651dab1502a7a65ea4888e0406f19e61
"""

CHECKPOINTS = {
    name: Download(
        name=name,
        file=f"{name}.zip",
        url=f"{RELEASE_URL}/{name}.zip",
        size=int(size),
        sha256=sha256,
        terms=_FREE if name == "bach" else _NON_COMMERCIAL,
    )
    for name, size, sha256 in map(str.split, _WEIGHTS.strip().splitlines())
}


def fetch(
    download: Download, out: Path, *, url: str | None = None, progress: Progress | None = None
) -> None:
    """Download a file to `out`, from its `url` or another, going on from what an earlier try left.

    Raises:
        DatasetError: no connection, it broke off (what came is kept), or the wrong bytes came (they
            are deleted).
    """
    url = download.url if url is None else url
    if not re.match(r"https?://", url):
        raise ConfigError(f"url {url!r} is not of http or https; a local copy goes with --from.")
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{download.sha256[:16]}.part")
    have = part.stat().st_size if part.is_file() else 0
    if have > download.size:
        part.unlink()
        have = 0
    if have < download.size:
        with _connection_errors(url, part, download.size):
            _receive(download, url, part, have, progress or Progress())
    check_file(download, part, delete=True, origin=url)
    os.replace(part, out)


def fetch_soundfont(out: Path, *, url: str | None = None, progress: Progress | None = None) -> None:
    """Download the package of a better piano, as `fetch` does, and take its sound font out."""
    package = out.with_name(f".{SOUNDFONT_PACKAGE.sha256[:16]}.deb")  # nobody else's name
    fetch(SOUNDFONT_PACKAGE, package, url=url, progress=progress)
    copy_soundfont(package, out)
    package.unlink()


def copy_soundfont(source: Path, out: Path) -> None:
    """Copy a local sound font, or the one in a local copy of its package, as `copy_file` does."""
    if source.suffix != ".deb":
        copy_file(PIANO_SOUNDFONT, source, out)
        return
    if not source.is_file():
        raise DatasetError(f"{source}: no such file; expected a copy of {SOUNDFONT_PACKAGE.file}.")
    check_file(SOUNDFONT_PACKAGE, source, delete=False, origin=str(source))
    with atomic_path(out) as temporary:
        with open(source, "rb") as file, open(temporary, "wb") as font:
            _seek_member(file, b"data.tar.xz")
            with tarfile.open(fileobj=file, mode="r|xz") as packed:
                for member in packed:
                    if member.name.endswith(PIANO_SOUNDFONT.file):
                        shutil.copyfileobj(packed.extractfile(member) or io.BytesIO(), font)
                        break
        check_file(PIANO_SOUNDFONT, temporary, delete=False, origin=str(source))


def _seek_member(file: BinaryIO, name: bytes) -> None:
    """Go to the contents of a member of an ar archive, which is what a package of Debian is."""
    file.seek(8)  # !<arch>
    while header := file.read(60):
        if header.startswith(name):
            return
        size = int(header[48:58])
        file.seek(size + size % 2, os.SEEK_CUR)


def copy_file(download: Download, source: Path, out: Path) -> None:
    """Copy a local file to `out` once its size and sha256 are right.

    Raises:
        DatasetError: it is missing or another file; neither it nor `out` is touched.
    """
    path = source / download.file if source.is_dir() else source
    if not path.is_file():
        raise DatasetError(f"{path}: no such file; expected a copy of {download.file}.")
    check_file(download, path, delete=False, origin=str(path))
    with atomic_path(out) as temporary:
        shutil.copyfile(path, temporary)


def _receive(download: Download, url: str, part: Path, have: int, progress: Progress) -> None:
    """Append what is missing to `part`; begin anew where the server cannot give a range."""
    headers = {"User-Agent": "music-transformer"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        content_range = str(response.headers.get("Content-Range", ""))
        if response.status != 206 or not content_range.startswith(f"bytes {have}-"):
            have = 0
        announced = str(response.headers.get("Content-Length"))
        # Another file is refused before its bytes come, so that what is on the disk stays.
        if announced.isdigit() and int(announced) + have != download.size:
            raise _wrong(download, url, f"the server offers {int(announced) + have:,} bytes")
        progress.begin(download.size, done=have, unit="B")
        try:
            with errors_name(part), open(part, "ab" if have else "wb") as file:
                while chunk := response.read(_CHUNK):
                    have += len(chunk)
                    if have > download.size:
                        file.close()
                        part.unlink()
                        raise _wrong(download, url, "it is longer than that")
                    file.write(chunk)
                    progress.update(len(chunk))
        finally:
            progress.end()
    if have < download.size:
        raise DatasetError(_broke_off(url, have, download.size))


@contextmanager
def _connection_errors(url: str, part: Path, size: int) -> Iterator[None]:
    """Say in one line what is wrong with a connection."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is not the beginning of what is there
            part.unlink(missing_ok=True)
            raise DatasetError(f"{url}: the server refused to go on; run it again.") from error
        raise DatasetError(f"{url}: the server answers {error.code} {error.reason}.") from error
    except (http.client.IncompleteRead, ConnectionResetError, TimeoutError) as error:
        have = part.stat().st_size if part.is_file() else 0
        raise DatasetError(_broke_off(url, have, size)) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetError(
            f"{url}: no connection ({reason}); check the network, or give a local copy with --from."
        ) from error


def _broke_off(url: str, have: int, size: int) -> str:
    return f"{url}: the connection broke off at {have:,} of {size:,} bytes; run it again to go on."


def check_file(download: Download, path: Path, *, delete: bool, origin: str) -> None:
    """Refuse a file whose size or sha256 is wrong."""
    size = path.stat().st_size
    if size == download.size:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == download.sha256:
            return
        found = f"its sha256 is {digest}"
    else:
        found = f"it has {size:,} bytes"
    if delete:
        path.unlink()
    raise _wrong(download, origin, found, deleted=delete)


def _wrong(download: Download, origin: str, found: str, *, deleted: bool = False) -> DatasetError:
    what = f"{download.file} with {download.size:,} bytes and sha256 {download.sha256}"
    end = "; what came is deleted, run it again" if deleted else ""
    return DatasetError(f"{origin}: not {what}: {found}{end}.")
