"""Revisions as strong entity tags, and the two conditions made with them (RFC 9110, section 13.1)."""

import re
from dataclasses import dataclass

from controlplane.api.errors import BadHeader, PreconditionRequired

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_ANY_TAG = re.compile(_TAG)
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*+")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the caller believes to change: one of these tags, or, when there are none, whatever is there."""

    tags: frozenset[str] | None

    def matches(self, revision: int) -> bool:
        """Compared as strong tags are, letter by letter; so a weak one never matches."""
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
    """Whether the caller already has this revision. A malformed header asks for nothing, so it gets the answer."""
    tags = _tags(header or "") or []
    return tags == ["*"] or etag_of(revision) in {tag.removeprefix("W/") for tag in tags}


def _tags(header: str) -> list[str] | None:
    """The tags in a header, `*` alone for any, or None when it is malformed."""
    header = header.strip(" \t,")
    if header == "*":
        return ["*"]
    return _ANY_TAG.findall(header) if _TAGS.fullmatch(header) else None
