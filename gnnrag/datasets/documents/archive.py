"""Open documents that are ZIP files (.docx, .pptx, .xlsx, .epub) from strangers.

Nothing is unpacked before its size is known, and XML that declares entities is refused.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from gnnrag.datasets.jsonl import read_whole
from gnnrag.errors import DataError

MAX_FILE = 200_000_000  # bytes, packed
MAX_MEMBERS = 20_000
MAX_XML = 50_000_000  # bytes that one member with text unpacks to
MAX_UNPACKED = 500_000_000  # and all of them, pictures included
_TEXT = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".vml")
_MEDIA = (
    *(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".emf", ".wmf", ".ico", ".svg"),
    *(".mp3", ".mp4", ".m4a", ".wav", ".avi", ".mov", ".wmv", ".ttf", ".otf", ".woff", ".woff2", ".odttf", ".fntdata"),
)


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[BinaryIO, zipfile.ZipFile]]:
    """Open a document that is a ZIP file, read whole, so that what is checked is what is read; DataError: damaged."""
    file = io.BytesIO(read_whole(path, MAX_FILE))
    try:
        with zipfile.ZipFile(file) as archive:
            yield file, archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        problem = f"is a damaged or encrypted {path.suffix.lower()} ({type(error).__name__}: {error})"
        raise DataError(path, problem) from error


def members(path: Path, archive: zipfile.ZipFile, needs: str) -> frozenset[str]:
    """Return the names in an archive after checking them; DataError: too large, or `needs` is not among them.

    Every XML, whatever its name ends in, is read once: what its header says of its size may be a lie, which the reading
    finds out.
    """
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    if len(infos) > MAX_MEMBERS or total > MAX_UNPACKED:
        limit = f"the limits are {MAX_MEMBERS:,} members and {MAX_UNPACKED:,} bytes"
        raise DataError(path, f"holds {len(infos):,} members that unpack to {total:,} bytes; {limit}")
    for info in infos:
        if info.filename.lower().endswith(_MEDIA):
            continue
        with archive.open(info) as member:
            begins = member.read(100).lstrip(b"\xef\xbb\xbf \t\r\n")
        is_text = info.filename.lower().endswith(_TEXT) or begins[:1] == b"<"
        if not is_text:
            continue
        if info.file_size > MAX_XML:
            problem = f"{info.filename} unpacks to {info.file_size:,} bytes, the limit is {MAX_XML:,}; split it"
            raise DataError(path, problem)
        raw = archive.read(info)  # never more than the header says, else it is damaged
        if b"<!ENTITY" in raw or raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in raw[:100]:
            raise DataError(path, f"{info.filename} declares entities or is no UTF-8; save it again")
    names = frozenset(info.filename for info in infos)
    if needs not in names:
        raise DataError(path, f"is a damaged {path.suffix.lower()}: it holds no {needs}")
    return names


def xml_root(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    """Return the root of an XML in an archive; DataError: it is not well-formed."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        return etree.fromstring(archive.read(name), parser)
    except etree.XMLSyntaxError as error:
        raise DataError(path, f"{name} is no well-formed XML ({error})") from error
