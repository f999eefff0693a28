"""What somebody typed into a form that could not be taken, carried to where they sign in again, and back.

The server keeps none of it: the sign-in page carries it, sealed for the one person whose page the form was on, for an
hour. Nobody else's sign-in opens it. Passwords, keys and a page's own tokens are never in it.
"""

import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.core import signing
from django.http import HttpRequest

from controlplane.dashboard.refilling import TOKENS
from tenants.crypto import Unreadable, seal, unseal

LASTS: Final = timedelta(hours=1)
PAGES_LAST: Final = timedelta(days=7)  # how old a page may be whose form is sent
MOST_LETTERS: Final = 200_000
MOST_FIELDS: Final = 1_000
BY: Final = "form_by"  # whose page a form was made for; beside each form's token
KEPT: Final = "kept"
SECRETS: Final = frozenset({"password", "current", "new", "again"})
SECRETS_OF: Final[Mapping[str, frozenset[str]]] = {"start": frozenset({"key"})}
# Whatever is sent there is a secret, or no text.
NEVER: Final = frozenset({"sign-in", "sign-out", "password", "theme", "invitation", "reset"})
_SALT: Final = "luminet.form"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where it was sent to, the page that the form stood on, and what was typed."""

    sent_to: str
    page: str
    typed: dict[str, list[str]]


class TooLong(ValueError):
    """More was typed than a page carries."""


def author_signed(user: int) -> str:
    return signing.TimestampSigner(salt=_SALT).sign(str(user))


def author_of(request: HttpRequest) -> int | None:
    """Whose page the form stood on; None where nobody's, or where that was long ago."""
    try:
        return int(signing.TimestampSigner(salt=_SALT).unsign(request.POST.get(BY, ""), max_age=PAGES_LAST))
    except (signing.BadSignature, ValueError):
        return None


def is_from_here(request: HttpRequest) -> bool:
    """Whether a page of ours sent it: nobody else's page puts words into a form of ours."""
    told = urlsplit(request.headers.get("Origin") or request.headers.get("Referer", ""))
    return (told.scheme, told.netloc) == (request.scheme, request.get_host())


def kept_of(request: HttpRequest) -> Kept | None:
    """What may be kept of a form. Raises TooLong; None where it is none of ours, or nothing but secrets."""
    name = request.resolver_match.url_name if request.resolver_match else None
    if name in NEVER or not is_from_here(request) or author_of(request) is None:
        return None
    secrets = SECRETS | SECRETS_OF.get(name or "", frozenset())
    typed = {key: [*map(str, values)] for key, values in request.POST.lists() if key not in TOKENS | secrets}
    letters = sum(len(key) + sum(map(len, values)) for key, values in typed.items())
    if letters > MOST_LETTERS or sum(map(len, typed.values())) > MOST_FIELDS:
        raise TooLong
    page = urlsplit(request.headers.get("Referer", ""))
    is_ours = (page.scheme, page.netloc) == (request.scheme, request.get_host())
    address = f"{page.path}?{page.query}".removesuffix("?") if is_ours else ""
    return Kept(request.get_full_path(), address, typed)


def sealed(kept: Kept, *, author: int, now: float) -> str:
    told = json.dumps([now, kept.sent_to, kept.page, kept.typed]).encode()
    return urlsafe_b64encode(seal(zlib.compress(told), place=_place(author))).decode()


def unsealed(told: str, *, reader: int, now: float) -> Kept | None:
    """None for whoever it is not for, and where it is over."""
    try:
        said: list[Any] = json.loads(zlib.decompress(unseal(urlsafe_b64decode(told), place=_place(reader))))
    except (Unreadable, ValueError, zlib.error):
        return None
    since, sent_to, page, typed = said
    return Kept(sent_to, page, typed) if 0 <= now - since <= LASTS.total_seconds() else None


def readable(kept: Kept) -> list[tuple[str, str]]:
    """What of it somebody typed, to be read and copied."""
    hidden = {"do", "next", "publish", "models", "guards", "strategy"}
    return [
        (name, value)
        for name, values in kept.typed.items()
        for value in values
        if value and name not in hidden and not name.endswith(("revision", "once", "-unit", "-has"))
    ]


def _place(author: int) -> str:
    return f"form/{author}"
