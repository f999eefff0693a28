"""Addresses that let their holder in: recognised wherever they are written, so that no log holds one that works."""

import re

# Also where no route matched, as with a slash too many, and inside another address, where slashes are escaped.
_SLASH = r"(?:/|%2f)"
_LINK = re.compile(rf"({_SLASH}(?:invitation|reset){_SLASH})(?:{_SLASH}|\s)*[^\s/?&#\"'<>\\]+", re.IGNORECASE)


def is_one_time_link(path: str) -> bool:
    return _LINK.match(path) is not None


def without_secrets(text: str) -> str:
    """The text with "…" where the secret of a link stood: whoever reads logs must not be able to use it."""
    return _LINK.sub(r"\1…", text)
