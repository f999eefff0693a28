"""Errors of a request's form, found before its meaning is checked. problems.py gives them statuses."""

SHOWN_LENGTH = 100


class RefusedRequest(Exception):
    """One part of the request cannot be used: `field` names it, `message` says what is accepted."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class BadJson(RefusedRequest):
    """The body is not valid JSON, or not in our strict form."""


class BadQuery(RefusedRequest):
    """A parameter of the query string is malformed or repeated."""


class BadHeader(RefusedRequest):
    """A header is malformed."""


class BadCursor(RefusedRequest):
    """The cursor does not come from this list."""


class UnsupportedMediaType(RefusedRequest):
    """The body's media type is not supported."""


class PreconditionRequired(RefusedRequest):
    """The change must say which revision it is for."""


class ForeignTag(RefusedRequest):
    """If-Match names no revision, so it can never match."""

    def __init__(self, tag: str) -> None:
        reason = "a weak ETag, which never matches" if tag.startswith("W/") else "not the ETag of a revision"
        super().__init__("If-Match", f'{shown(tag)} is {reason}: send the revision in double quotes, as in "7"')


def shown(text: str) -> str:
    """Return text from the caller so that it can be shown: short, on one line, only printable characters."""
    clipped = text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in clipped)
