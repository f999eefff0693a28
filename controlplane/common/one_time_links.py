"""Recognise one-time links in any text, so that no log contains one that works."""

import re

# Also matches where no route does, as with an extra slash, and inside another URL, where slashes are escaped.
_SLASH = r"(?:/|%2f)"
_LINK = re.compile(rf"({_SLASH}(?:invitation|reset){_SLASH})(?:{_SLASH}|\s)*[^\s/?&#\"'<>\\]+", re.IGNORECASE)


def is_one_time_link(path: str) -> bool:
    return _LINK.match(path) is not None


def without_secrets(text: str) -> str:
    """Return the text with "…" for each link's secret, so that a reader of logs cannot use it."""
    return _LINK.sub(r"\1…", text)
