"""What can be wrong with a request before anybody asks what it means. Statuses are given in problems.py, not here."""

SHOWN_LENGTH = 100


class RefusedRequest(Exception):
    """One part of the request cannot be used: `field` names it, `message` says what would do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class BadJson(RefusedRequest):
    """The body is not the JSON we take."""


class BadQuery(RefusedRequest):
    """A parameter of the query string is malformed or repeated."""


class BadHeader(RefusedRequest):
    """A header is there, but malformed."""


class BadCursor(RefusedRequest):
    """Not a cursor this list gave out."""


class UnsupportedMediaType(RefusedRequest):
    """The body is of a kind we do not read."""


class PreconditionRequired(RefusedRequest):
    """The change needs to say which revision it was made for."""


class ForeignTag(RefusedRequest):
    """If-Match names no revision, so that it can never match."""

    def __init__(self, tag: str) -> None:
        what = "a weak ETag, which never matches" if tag.startswith("W/") else "not the ETag of a revision"
        super().__init__("If-Match", f'{shown(tag)} is {what}: send the revision in double quotes, as in "7"')


def shown(text: str) -> str:
    """What somebody sent, fit to be shown back: short, on one line, nothing invisible."""
    clipped = text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in clipped)
