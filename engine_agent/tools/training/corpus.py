"""The demo model's training data: the language reference, the standard library and its docstrings, as in every CPython.

The corpus depends only on the Python that runs this; `digest` identifies it. A topic or module whose name hashes below
the limit is held out with its page, source and chats. Paragraphs that it shares with other documents (topics quote each
other) are removed from those, so held-out text is never trained on.
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
SHORTEST, LONGEST_SOURCE = 300, 300_000  # characters; shorter sources teach nothing, longer ones are mostly tables
HELD_OUT_PERCENT = 6
SALT = "luminet 1"  # of the first ten, the one that leaves the modules people ask about in training
SHARED_PARAGRAPH = 60  # characters; shorter ones are phrases, not text


@dataclass(frozen=True, slots=True)
class Document:
    """One text; `origin` is the topic or module it was made from, which is held out or not as a whole."""

    origin: str
    kind: str  # topic, page or source
    text: str

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.origin.partition(':')[2]}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """All documents, sorted by name, and the docstrings of objects."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    entries: tuple[Entry, ...]  # of training modules only
    digest: str


def is_held_out(origin: str) -> bool:
    """Return whether this topic or module is held out, which depends on its name alone and so never changes."""
    return int(hashlib.sha256(f"{SALT} {origin}".encode()).hexdigest()[:8], 16) % 100 < HELD_OUT_PERCENT


def read_topics() -> Iterator[Document]:
    """Iterate over the language reference, as `help()` shows it."""
    for name, text in sorted(pydoc_data.topics.topics.items()):
        yield Document(f"topic:{name}", "topic", tidy(text))


def read_sources(root: Path) -> Iterator[tuple[str, str]]:
    """Iterate over name and source of each module below this folder that is text, not a table or a test."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        generated = parts[0].startswith("_sysconfigdata")  # paths and flags of one machine
        if generated or not LEAVE_OUT.isdisjoint(parts) or not TWINS.isdisjoint(parts):
            continue
        if path.stat().st_size <= LONGEST_SOURCE:
            name = ".".join(part for part in parts if part != "__init__")
            yield PUBLIC.get(name, name), path.read_text(encoding="utf-8", errors="replace")


def tidy(text: str) -> str:
    """Return the text without trailing blanks and repeated empty lines, which teach nothing."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text.replace("\t", "    "))).strip() + "\n"


def page(module: str, entries: Iterable[Entry]) -> str:
    """Return a module's docstrings as one page of prose."""
    return tidy("\n".join([f"{module}\n{'=' * len(module)}\n", *(entry.paragraph for entry in entries)]))


def paragraphs(text: str) -> list[str]:
    return re.split(r"\n\s*\n", text)


def fingerprints(text: str) -> set[str]:
    """Return a text's paragraphs without indentation and wrapping, except for short ones."""
    words = (" ".join(paragraph.split()) for paragraph in paragraphs(text))
    return {paragraph for paragraph in words if len(paragraph) >= SHARED_PARAGRAPH}


def without(text: str, forbidden: set[str]) -> str:
    """Return the text without the paragraphs in `forbidden`."""
    if fingerprints(text).isdisjoint(forbidden):
        return text
    return (
        "\n\n".join(paragraph for paragraph in paragraphs(text) if " ".join(paragraph.split()) not in forbidden).strip()
        + "\n"
    )


def read_documents(root: Path) -> tuple[list[Document], list[Entry]]:
    """Return every document and entry of the standard library below this folder, held out or not."""
    documents, entries = list(read_topics()), dict[str, list[Entry]]()
    for name, source in read_sources(root):
        if len(source) >= SHORTEST:
            documents.append(Document(f"module:{name}", "source", tidy(source)))
        entries.setdefault(name, []).extend(python_entries(name, source))
    for entry in builtin_entries():
        entries.setdefault(entry.module, []).append(entry)
    for name, module_entries in sorted(entries.items()):
        if module_entries:
            documents.append(Document(f"module:{name}", "page", page(name, module_entries)))
    return documents, [entry for _, module_entries in sorted(entries.items()) for entry in module_entries]


def digest_of(documents: Sequence[Document]) -> str:
    """Return a sha256 over names and texts, each preceded by its length."""
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.name.encode(), document.text.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def split(all_documents: Iterable[Document], entries: Iterable[Entry]) -> Corpus:
    """Return the training and the held-out documents, without a paragraph in both."""
    documents = sorted(all_documents, key=lambda document: document.name)
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
    """Return the corpus of the Python that runs this."""
    return split(*read_documents(Path(sysconfig.get_path("stdlib"))))
