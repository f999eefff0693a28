"""The page format in which an engine tells gateways which blocks its cache gained and lost, and how busy it is.

Standard library only. A gateway requests the changes after a number and gets a page: changes in order, the next number
to request, and the load. After a gap or another boot, the page is a snapshot that replaces everything known of this
engine. What does not fit in one page follows in the next (`is_whole` is false; the rest is available at once). Marks
identify blocks: the first eight bytes of their digests. They suffice to find a block and cannot be computed without the
namespace's key.

Bytes of a page, all numbers little-endian: magic, flags, boot, number, load, the namespaces in the page, the changes.
Equal pages have equal bytes, and malformed bytes are rejected. A page of another version is rejected too: the gateway
then knows nothing of that engine's cache and still sends it requests.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["stored", "removed", "cleared"]

MARK_BYTES = 8
MOST_PAGE_BYTES = 4 << 20
MOST_WAIT_SECONDS = 30.0  # longest time that an engine delays an answer without changes
CONTENT_TYPE = "application/vnd.luminet.block-events"
_MAGIC = b"LUMBLK\x00\x01"  # the last byte is the version
_IS_SNAPSHOT, _IS_WHOLE = 1, 2
_LOAD = struct.Struct("<IIIQQd")
_COUNT, _LENGTH, _NUMBER = struct.Struct("<I"), struct.Struct("<H"), struct.Struct("<Q")
_CHANGE = struct.Struct("<BI8s8sI")
_KINDS: tuple[Kind, ...] = get_args(Kind)
_PLACES: Mapping[str, int] = {kind: index for index, kind in enumerate(_KINDS)}


class BadPage(ValueError):
    """The bytes are not a page."""


class OtherVersion(BadPage):
    """The page has another version."""


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's load. `seats` is 0 if the engine reports no seats."""

    running: int
    waiting: int  # requests that wait for memory or a seat
    seats: int
    free_blocks: int  # free, or cached and not leased
    pool_blocks: int
    seconds_behind: float  # waiting time of the first queued request


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A change of the cache's index.

    `stored`: these blocks can be matched, each below the one before it, the first below `parent` (the root's mark if it
    has no parent block). `removed`: the blocks left the last tier that had them. `cleared`: no block is left under the
    root.
    """

    kind: Kind
    namespace: str
    root: bytes  # a mark
    parent: bytes  # a mark
    marks: bytes  # concatenated marks


@dataclass(frozen=True, slots=True)
class Page:
    boot: str
    number: int  # opaque value for the next request
    is_snapshot: bool  # the page replaces everything known of this engine
    is_whole: bool  # no more changes are available now
    load: Load
    changes: tuple[BlockChange, ...]


def events_encode(page: Page) -> bytes:
    """Encode a page. Raise ValueError if it has values that the format cannot represent."""
    names: dict[str, int] = {}
    changes = [_change_encode(change, names) for change in page.changes]
    flags = page.is_snapshot * _IS_SNAPSHOT | page.is_whole * _IS_WHOLE
    load = page.load
    try:
        page_bytes = b"".join(
            (
                _MAGIC,
                bytes((flags,)),
                _text_encode(page.boot),
                _NUMBER.pack(page.number),
                _LOAD.pack(
                    load.running, load.waiting, load.seats, load.free_blocks, load.pool_blocks, load.seconds_behind
                ),
                _COUNT.pack(len(names)),
                *map(_text_encode, names),
                _COUNT.pack(len(changes)),
                *changes,
            )
        )
    except struct.error as problem:
        raise ValueError(f"a page cannot say this: {problem}") from None
    if not _is_duration(load.seconds_behind):
        raise ValueError(f"seconds_behind cannot be {load.seconds_behind}")
    if len(page_bytes) > MOST_PAGE_BYTES:
        raise ValueError(f"a page of {len(page_bytes):,} bytes is longer than {MOST_PAGE_BYTES:,}")
    return page_bytes


def events_decode(data: bytes) -> Page:
    """Decode a page. Raise BadPage."""
    if len(data) > MOST_PAGE_BYTES:
        raise BadPage(f"{len(data):,} bytes, and {MOST_PAGE_BYTES:,} may be")
    reader = _Reader(data)
    try:
        page = _page_decode(reader)
    except struct.error:
        raise BadPage(f"it ends in the middle, after {len(data):,} bytes") from None
    except UnicodeDecodeError:
        raise BadPage("a name is no text") from None
    if reader.place != len(data):
        raise BadPage(f"{len(data) - reader.place:,} bytes follow its end")
    return page


def change_bytes(change: BlockChange) -> int:
    """Return a change's length in a page, including its namespace's name."""
    return _CHANGE.size + len(change.marks) + _LENGTH.size + len(change.namespace.encode())


def _change_encode(change: BlockChange, names: dict[str, int]) -> bytes:
    if problem := _problem(change.kind, len(change.marks)):
        raise ValueError(problem)
    if len(change.root) != MARK_BYTES or len(change.parent) != MARK_BYTES or len(change.marks) % MARK_BYTES:
        raise ValueError(f"marks are of {MARK_BYTES} bytes each")
    index = names.setdefault(change.namespace, len(names))
    count = len(change.marks) // MARK_BYTES
    return _CHANGE.pack(_PLACES[change.kind], index, change.root, change.parent, count) + change.marks


def _text_encode(text: str) -> bytes:
    encoded = text.encode()
    if not encoded:
        raise ValueError("a name is empty")
    return _LENGTH.pack(len(encoded)) + encoded


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raise struct.error if there are fewer."""
        chunk = self._data[self.place : self.place + count]
        if len(chunk) != count:
            raise struct.error
        self.place += count
        return chunk

    def text(self) -> str:
        (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
        if not length:
            raise BadPage("a name is empty")
        return self.take(length).decode()

    def count(self) -> int:
        count: int = _COUNT.unpack(self.take(_COUNT.size))[0]
        return count


def _page_decode(reader: _Reader) -> Page:
    *magic, version = reader.take(len(_MAGIC))
    if bytes(magic) != _MAGIC[:-1]:
        raise BadPage("it does not begin as a page does")
    if version != _MAGIC[-1]:
        raise OtherVersion(f"it is a page of version {version}, and {_MAGIC[-1]} is read here")
    (flags,) = reader.take(1)
    if flags & ~(_IS_SNAPSHOT | _IS_WHOLE):
        raise BadPage(f"flags {flags:#x} mean nothing")
    boot = reader.text()
    (number,) = _NUMBER.unpack(reader.take(_NUMBER.size))
    load = Load(*_LOAD.unpack(reader.take(_LOAD.size)))
    if not _is_duration(load.seconds_behind):
        raise BadPage("seconds_behind is no time")
    changes = tuple(_changes(reader, _names(reader)))
    return Page(boot, number, bool(flags & _IS_SNAPSHOT), bool(flags & _IS_WHOLE), load, changes)


def _names(reader: _Reader) -> list[str]:
    names: list[str] = []
    for _ in range(reader.count()):  # a wrong count ends at the end of the bytes
        names.append(reader.text())
    if len(set(names)) != len(names):
        raise BadPage("a namespace is named twice")
    return names


def _changes(reader: _Reader, names: list[str]) -> Iterator[BlockChange]:
    namespace_count = 0  # namespaces are listed in the order of their first change
    take, unpack = reader.take, _CHANGE.unpack
    for _ in range(reader.count()):
        kind, name, root, parent, count = unpack(take(_CHANGE.size))
        if kind >= len(_KINDS):
            raise BadPage(f"there is no kind {kind}")
        if name > namespace_count or name >= len(names):
            raise BadPage(f"namespace {name} is out of order")
        namespace_count += name == namespace_count
        if problem := _problem(_KINDS[kind], count):
            raise BadPage(problem)
        yield BlockChange(_KINDS[kind], names[name], root, parent, take(count * MARK_BYTES))
    if namespace_count != len(names):
        raise BadPage(f"{len(names)} namespaces are named, and it speaks of {namespace_count}")


def _problem(kind: Kind, marks: int) -> str | None:
    if kind not in _PLACES:
        return f"there is no kind {kind}"
    if (kind == "cleared") == bool(marks):
        return f"{kind} with {marks} bytes or blocks of marks"
    return None


def _is_duration(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
