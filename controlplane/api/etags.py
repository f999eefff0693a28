"""Entity tags, strong for revisions and weak otherwise, and the conditions that use them (RFC 9110, 13.1)."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from controlplane.api.errors import BadHeader, PreconditionRequired

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_ANY_TAG = re.compile(_TAG)
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*+")


@dataclass(frozen=True, slots=True)
class Expected:
    """The caller's If-Match: one of these tags, or None for any revision."""

    tags: frozenset[str] | None

    def matches(self, revision: int) -> bool:
        """Compare as strong tags are, character by character, so a weak tag never matches."""
        return self.tags is None or etag_of(revision) in self.tags


def etag_of(revision: int) -> str:
    return f'"{revision}"'


def parse_if_match(header: str | None) -> Expected:
    if header is None:
        raise PreconditionRequired("If-Match", 'is missing: send the ETag of the revision you change, as in "7"')
    tags = _tags(header)
    if tags is None:
        raise BadHeader("If-Match", 'is malformed: write the revision in double quotes, as in "7", or * for any')
    return Expected(None if tags == ["*"] else frozenset(tags))


def if_none_match_matches(header: str | None, revision: int) -> bool:
    """Return whether the caller already has this revision."""
    return has_tag(header, etag_of(revision))


def has_tag(header: str | None, tag: str) -> bool:
    """Compare as weak tags are. A malformed header counts as absent, so its sender gets the full answer."""
    tags = _tags(header or "") or []
    return tags == ["*"] or tag.removeprefix("W/") in {listed_tag.removeprefix("W/") for listed_tag in tags}


def content_tag(content: Any) -> str:
    """Return a tag for content without a revision: weak, because the answer may also contain the time of reading."""
    text = json.dumps(content, default=str, sort_keys=True, separators=(",", ":"))
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def _tags(header: str) -> list[str] | None:
    """Return the tags of a header, `*` alone for any, or None if it is malformed."""
    header = header.strip(" \t,")
    if header == "*":
        return ["*"]
    return _ANY_TAG.findall(header) if _TAGS.fullmatch(header) else None
