"""What clients were told, added up by itself: of every response its headers, by whose they are and who sent them.

Nothing of the product adds up here. A response whose headers arrived counts, whatever became of it after. A request
that got neither headers nor a refusal is in doubt: something died, or its client left, while they may have been on
their way. For exactly those the engines' journals are asked, which are kept aside here from being cut.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine_agent.journal.records import Closed, DamagedLine, Opened, entry_of

PROMPT, CACHED, NAMESPACE, AGENT = (
    f"x-luminet-{name}" for name in ("prompt-tokens", "cached-tokens", "namespace", "agent")
)
KEEP_SECONDS = 0.02


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """By their names."""

    organisation: str
    namespace: str
    agent: str


@dataclass(frozen=True, slots=True)
class Sum:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
        )


Sums = dict[Place, Sum]


def total(sums: Mapping[Place, Sum], organisation: str | None = None) -> Sum:
    return sum((one for place, one in sums.items() if organisation in (None, place.organisation)), Sum())


def summed(numbers: Iterable[tuple[Place, Sum]]) -> Sums:
    found: Sums = {}
    for place, one in numbers:
        found[place] = found.get(place, Sum()) + one
    return found


# What clients saw


@dataclass(frozen=True, slots=True)
class Told:
    """One response's headers."""

    request: str  # the id its client gave it
    place: Place
    sum: Sum


@dataclass(slots=True)
class Recount:
    """Any number of clients add to it at once."""

    answers: list[Told] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)  # by request: what happened to it
    refusals: Counter[int] = field(default_factory=Counter)  # by status: nothing was counted
    cut: list[str] = field(default_factory=list)  # answers that began, are counted, and did not come whole
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, request: str, organisation: str, headers: Mapping[str, str]) -> None:
        place = Place(organisation, headers[NAMESPACE], headers[AGENT])
        told = Told(request, place, Sum(1, int(headers[PROMPT]), int(headers[CACHED])))
        with self._lock:
            self.answers.append(told)

    def refused(self, status: int) -> None:
        with self._lock:
            self.refusals[status] += 1

    def doubted(self, request: str, why: str) -> None:
        with self._lock:
            self.doubts[request] = why

    def cut_short(self, what: str) -> None:
        with self._lock:
            self.cut.append(what)

    def in_vain(self, but: str) -> list[str]:
        """What became of requests whose clients waited for a whole answer and got none. `but`: of these they left."""
        with self._lock:
            return [*(why for why in self.doubts.values() if why != but), *self.cut]

    def lower(self) -> Sums:
        """What must be counted."""
        return summed((one.place, one.sum) for one in self.answers)


# What engines wrote down


@dataclass(slots=True)
class Segment:
    """A file that only grows: what was read of it stays so."""

    path: Path
    read_bytes: int = 0
    records: list[Opened | Closed] = field(default_factory=list)

    def read_on(self) -> None:
        if self.path.stat().st_size == self.read_bytes:
            return
        with self.path.open("rb") as file:
            file.seek(self.read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self.read_bytes += len(whole) + 1
            self.records += _sound(whole.split(b"\n"))


def _sound(lines: Iterable[bytes]) -> Iterator[Opened | Closed]:
    for line in lines:
        with suppress(DamagedLine):
            yield entry_of(line).record


@dataclass(slots=True)
class KeptJournals:
    """Every segment that journals under `roots` ever had: whoever cuts one takes away a name, and here is another."""

    roots: list[Path]
    folder: Path
    segments: dict[Path, Segment] = field(default_factory=dict)
    _kept: set[int] = field(default_factory=set)  # inodes, none of which is used again while it has a link here
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self) -> None:
        for root in self.roots:
            for segment in _segments_under(root):
                if segment.inode() not in self._kept:
                    with suppress(FileExistsError, FileNotFoundError):  # known, or cut in this moment
                        path = Path(segment.path)
                        inode = path.stat().st_ino
                        os.link(path, self.folder / f"{inode}__{path.parent.name}__{path.name}")
                        self._kept.add(inode)

    def records(self) -> list[Opened | Closed]:
        self.keep()
        with self._lock:
            for path in sorted(self.folder.glob("*.log")):
                self.segments.setdefault(path, Segment(path)).read_on()
            return [record for segment in self.segments.values() for record in segment.records]

    def opened(self) -> list[Opened]:
        return [record for record in self.records() if isinstance(record, Opened)]

    def closed(self) -> list[Closed]:
        return [record for record in self.records() if isinstance(record, Closed)]

    def boots(self) -> set[str]:
        """Of how many processes there are journals."""
        self.keep()
        return {path.name.split("__")[1] for path in self.folder.glob("*.log")}

    def sums(self) -> dict[tuple[str, str], Sum]:
        """By the ids of organisation and namespace, of customers' requests."""
        places = ((one, (one.organisation_id, one.namespace_id)) for one in self.opened() if one.kind == "customer")
        found: dict[tuple[str, str], list[int]] = {}
        for one, place in places:
            numbers = found.setdefault(place, [0, 0, 0])
            for at, more in enumerate((1, one.prompt_tokens, one.cached_tokens)):
                numbers[at] += more
        return {place: Sum(*numbers) for place, numbers in found.items()}


def _segments_under(root: Path) -> list["os.DirEntry[str]"]:
    """As often as it takes: a folder may go while it is looked through."""
    while True:
        with suppress(FileNotFoundError):
            return [entry for folder in root.glob("**/journal/*/") for entry in _logs_in(folder)]


def _logs_in(folder: Path) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.endswith(".log")]


@contextmanager
def journals_kept(folder: Path, *roots: Path) -> Iterator[KeptJournals]:
    """Of engines whose states lie anywhere under these folders, on the same disk as `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, over = KeptJournals(list(roots), folder), threading.Event()

    def watch() -> None:
        while not over.wait(KEEP_SECONDS):
            kept.keep()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield kept
    finally:
        over.set()
        watching.join()


def sum_of(record: Opened) -> Sum:
    return Sum(1, record.prompt_tokens, record.cached_tokens)


# Both together


@dataclass(frozen=True, slots=True)
class Truth:
    """`sums` is what must be stored, to the token; `doubtful` the part of it that no client has seen."""

    sums: Sums
    doubtful: Sum


def truth_of(recount: Recount, records: Iterable[Opened], agents: Mapping[str, str] | None = None) -> Truth:
    """Headers, and of the requests in doubt what their engines wrote. A record that no client asked for is a mistake,
    and so is an answer without one. `agents` by request id, where a journal alone cannot say whose it is.
    """
    waiting: dict[str, list[Told]] = {}
    for told in recount.answers:
        waiting.setdefault(told.request, []).append(told)
    unseen: list[tuple[Place, Sum]] = []
    for record in records:
        if record.kind != "customer":
            continue
        asked = _asked_as(record)
        answers = waiting.get(asked, [])
        answer = next((one for one in answers if one.sum == sum_of(record)), None)
        if answer is not None:
            answers.remove(answer)
            continue
        was_tried_again = any(one.request == asked for one in recount.answers)
        assert asked in recount.doubts or was_tried_again, f"nobody asked for {record}"
        agent = (agents or {}).get(record.request_id, "")
        unseen.append((Place(record.organisation, record.namespace, agent), sum_of(record)))
    left = [one for answers in waiting.values() for one in answers]
    assert not left, f"answered, and in no journal: {left[:3]}"
    return Truth(summed([*((one.place, one.sum) for one in recount.answers), *unseen]), total(summed(unseen)))


def _asked_as(record: Opened) -> str:
    """The id that the client gave: a gateway adds to it, behind a dot."""
    return record.request_id.partition(".")[0]


def by_namespace(sums: Mapping[Place, Sum]) -> dict[tuple[str, str], Sum]:
    found: dict[tuple[str, str], Sum] = {}
    for place, one in sums.items():
        key = (place.organisation, place.namespace)
        found[key] = found.get(key, Sum()) + one
    return found
