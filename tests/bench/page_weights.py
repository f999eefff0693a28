"""What a browser that has never been here fetches for a page before it is painted, in bytes as they are served.

The document, its styles and their fonts, its scripts and what those import. Pictures come later and are not in it.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urljoin

from tests.bench.pages import Pages

# In the document's head and body: styles, fonts fetched ahead, scripts.
TAGS = re.compile(rb"<(?:link|script)\b[^>]*>")
ADDRESS = re.compile(rb'\b(?:href|src)="([^"]+)"')
PICTURE = re.compile(rb'\brel="[^"]*icon[^"]*"')
# In a style: other styles and fonts. In a script: modules, whichever way they are written; no code that looks alike.
WITHIN = {
    ".css": re.compile(rb"""url\(["']?([^"')]+)["']?\)"""),
    ".js": re.compile(rb"""\b(?:from|import)\s*\(?["'](\.{0,2}/[^"']+)["']"""),
}


class Weights:
    """Each file is fetched once, however many pages have it."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._known: dict[str, tuple[int, frozenset[str]]] = {}

    def of(self, path: str) -> int:
        """Of the page at that path, the document as it is answered included."""
        document = self._pages.fetch(path)
        found, waiting = set[str](), set(_named(path, document.content))
        while waiting:
            one = waiting.pop()
            found.add(one)
            waiting |= self._file(one)[1] - found
        return document.wire_bytes + sum(self._file(one)[0] for one in found)

    def _file(self, path: str) -> tuple[int, frozenset[str]]:
        if path not in self._known:
            fetched = self._pages.fetch(path)
            self._known[path] = fetched.wire_bytes, frozenset(_within(path, fetched.content))
        return self._known[path]


def _named(path: str, content: bytes) -> Iterator[str]:
    tags = (one for one in TAGS.findall(content) if not PICTURE.search(one))
    return _ours(path, (found[1] for one in tags if (found := ADDRESS.search(one))))


def _within(path: str, content: bytes) -> Iterator[str]:
    pattern = next((one for ending, one in WITHIN.items() if path.endswith(ending)), None)
    return _ours(path, pattern.findall(content) if pattern else ())


def _ours(path: str, addresses: Iterable[bytes]) -> Iterator[str]:
    """By path, as all that the pages name is ours; what is written into the file itself is none."""
    for one in addresses:
        found = urljoin(path, one.decode())
        if found.startswith("/static/"):
            yield found.partition("#")[0]
