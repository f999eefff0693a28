"""What the demo model reads: the language reference, the standard library, its docstrings, as every CPython has them.

The corpus depends on the Python that runs this and on nothing else; `digest` says which one it was. A topic or module
whose name hashes below the limit is held out with all that is made of it: page, source and chats. Paragraphs that it
shares with others (topics quote each other) are cut from those, so nothing held out is ever trained on.
"""

import hashlib
import pydoc_data.topics
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine_agent.tools.training.entries import Entry, builtin_entries, python_entries

LEAVE_OUT = frozenset(
    {"__pycache__", "ensurepip", "encodings", "idlelib", "lib2to3", "pydoc_data", "site-packages"}
    | {"test", "tests", "turtledemo", "venv"}
)
TWINS = frozenset({"ntpath", "nturl2path", "_collections_abc", "__hello__", "__phello__", "this", "antigravity"})
PUBLIC = {"posixpath": "os.path", "_pydecimal": "decimal", "_pyio": "io", "_pydatetime": "datetime"}
SHORTEST, LONGEST_SOURCE = 300, 300_000  # characters; below is nothing to learn, above are tables more than text
HELD_OUT_PERCENT = 6
SALT = "luminet 1"  # of the first ten, the one that leaves the modules people ask about in training
SHARED_PARAGRAPH = 60  # characters; shorter ones are phrases, not text


@dataclass(frozen=True, slots=True)
class Document:
    """One text; `origin` is the topic or module it was made of, which is what is held out or not."""

    origin: str
    kind: str  # topic, page or source
    text: str

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.origin.partition(':')[2]}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """All documents in the order of their names, and what docstrings say about which object."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    entries: tuple[Entry, ...]  # of training modules only
    digest: str


def is_held_out(origin: str) -> bool:
    """Whether this topic or module is kept from training: decided by its name alone, so no run decides otherwise."""
    return int(hashlib.sha256(f"{SALT} {origin}".encode()).hexdigest()[:8], 16) % 100 < HELD_OUT_PERCENT


def read_topics() -> Iterator[Document]:
    """The language reference, as `help()` shows it."""
    for name, text in sorted(pydoc_data.topics.topics.items()):
        yield Document(f"topic:{name}", "topic", tidy(text))


def read_sources(root: Path) -> Iterator[tuple[str, str]]:
    """Name and source of each module below this folder that is text rather than a table or a test."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        generated = parts[0].startswith("_sysconfigdata")  # paths and flags of one machine
        if generated or not LEAVE_OUT.isdisjoint(parts) or not TWINS.isdisjoint(parts):
            continue
        if path.stat().st_size <= LONGEST_SOURCE:
            name = ".".join(part for part in parts if part != "__init__")
            yield PUBLIC.get(name, name), path.read_text(encoding="utf-8", errors="replace")


def tidy(text: str) -> str:
    """Without trailing blanks, with at most one empty line in a row: neither teaches anything."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text.replace("\t", "    "))).strip() + "\n"


def page(module: str, entries: Iterable[Entry]) -> str:
    """What a module's docstrings say, as one page of prose."""
    return tidy("\n".join([f"{module}\n{'=' * len(module)}\n", *(entry.paragraph for entry in entries)]))


def paragraphs(text: str) -> list[str]:
    return re.split(r"\n\s*\n", text)


def fingerprints(text: str) -> set[str]:
    """Its paragraphs, however they are indented and wrapped, the short ones left out."""
    words = (" ".join(paragraph.split()) for paragraph in paragraphs(text))
    return {one for one in words if len(one) >= SHARED_PARAGRAPH}


def without(text: str, forbidden: set[str]) -> str:
    """The text without the paragraphs that are in `forbidden`."""
    if fingerprints(text).isdisjoint(forbidden):
        return text
    return "\n\n".join(one for one in paragraphs(text) if " ".join(one.split()) not in forbidden).strip() + "\n"


def read_documents(root: Path) -> tuple[list[Document], list[Entry]]:
    """Every document and every entry, held out or not, of the standard library below this folder."""
    documents, entries = list(read_topics()), dict[str, list[Entry]]()
    for name, source in read_sources(root):
        if len(source) >= SHORTEST:
            documents.append(Document(f"module:{name}", "source", tidy(source)))
        entries.setdefault(name, []).extend(python_entries(name, source))
    for entry in builtin_entries():
        entries.setdefault(entry.module, []).append(entry)
    for name, said in sorted(entries.items()):
        if said:
            documents.append(Document(f"module:{name}", "page", page(name, said)))
    return documents, [entry for _, said in sorted(entries.items()) for entry in said]


def digest_of(documents: Sequence[Document]) -> str:
    """sha256 over names and texts, each with its length in front."""
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.name.encode(), document.text.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def split(found: Iterable[Document], entries: Iterable[Entry]) -> Corpus:
    """What is trained on and what is not, without a paragraph that is in both."""
    documents = sorted(found, key=lambda document: document.name)
    held_out = tuple(document for document in documents if is_held_out(document.origin))
    forbidden = set[str]().union(*(fingerprints(document.text) for document in held_out))
    training = tuple(
        Document(document.origin, document.kind, without(document.text, forbidden))
        for document in documents
        if not is_held_out(document.origin)
    )
    allowed = (entry for entry in entries if not is_held_out(f"module:{entry.module}"))
    free = tuple(entry for entry in allowed if fingerprints(entry.doc).isdisjoint(forbidden))
    return Corpus(training, held_out, free, digest_of(documents))


@cache
def read_corpus() -> Corpus:
    """The corpus of the Python that runs this."""
    return split(*read_documents(Path(sysconfig.get_path("stdlib"))))
