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

from django.conf import settings
from django.core import signing
from django.http import HttpRequest

from controlplane.dashboard.accounts.refilling import TOKENS, is_of_page
from tenants.crypto import Unreadable, seal, unseal

LASTS: Final = timedelta(hours=1)
PAGES_LAST: Final = timedelta(days=7)  # how old a page may be whose form is sent
MOST_LETTERS: Final = 200_000
BY: Final = "form_by"  # whose page a form was made for; beside each form's token
KEPT: Final = "kept"
SECRETS: Final = frozenset({"password", "current", "new", "again"})
SECRETS_OF: Final[Mapping[str, frozenset[str]]] = {"start": frozenset({"key"})}
# Whatever is sent there is a secret, or no text.
NEVER: Final = frozenset({"sign-in", "sign-out", "password", "theme", "invitation", "reset"})
NOT_TYPED: Final = frozenset({"do", "next", "publish", "models", "guards"})  # buttons, and what a form says it shows
_SALT: Final = "luminet.form"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where it was sent to, the page that the form stood on, what was typed, and by whom."""

    sent_to: str
    page: str
    typed: dict[str, list[str]]
    author: int


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
    return _is_ours(request, request.headers.get("Origin") or request.headers.get("Referer", ""))


def _is_ours(request: HttpRequest, address: str) -> bool:
    """By the same origins as Django's own check: behind a proxy it is not what the request itself says."""
    try:
        told = urlsplit(address)
    except ValueError:
        return False
    ours = {f"{request.scheme}://{request.get_host()}", *settings.CSRF_TRUSTED_ORIGINS}
    return f"{told.scheme}://{told.netloc}" in ours


def kept_of(request: HttpRequest) -> Kept | None:
    """What may be kept of a form. Raises TooLong; None where it is none of ours, or nothing but secrets."""
    name = request.resolver_match.url_name if request.resolver_match else None
    if name in NEVER or not is_from_here(request) or (author := author_of(request)) is None:
        return None
    secrets = SECRETS | SECRETS_OF.get(name or "", frozenset())
    typed = {key: [*map(str, values)] for key, values in request.POST.lists() if key not in TOKENS | secrets}
    letters = sum(len(key) + sum(map(len, values)) for key, values in typed.items())
    if letters > MOST_LETTERS:
        raise TooLong
    return Kept(request.get_full_path(), _page_of(request), typed, author)


def _page_of(request: HttpRequest) -> str:
    """Which page the form stood on; "" where that was not told, or is none of ours."""
    told = request.headers.get("Referer", "")
    if not _is_ours(request, told):
        return ""
    page = urlsplit(told)
    return f"{page.path}?{page.query}".removesuffix("?")


def sealed(kept: Kept, *, now: float) -> str:
    told = json.dumps([now, kept.sent_to, kept.page, kept.typed]).encode()
    return urlsafe_b64encode(seal(zlib.compress(told), place=_place(kept.author))).decode()


def unsealed(told: str, *, reader: int, now: float) -> Kept | None:
    """None for whoever it is not for, and where it is over."""
    try:
        said: list[Any] = json.loads(zlib.decompress(unseal(urlsafe_b64decode(told), place=_place(reader))))
    except (Unreadable, ValueError, zlib.error):
        return None
    since, sent_to, page, typed = said
    return Kept(sent_to, page, typed, reader) if 0 <= now - since <= LASTS.total_seconds() else None


def readable(kept: Kept) -> list[tuple[str, str]]:
    """What of it somebody typed, to be read and copied."""
    typed = {name: values for name, values in kept.typed.items() if name not in NOT_TYPED and not is_of_page(name)}
    shown = {name: values for name, values in typed.items() if not name.endswith(("-unit", "-has"))}
    return [(name, value) for name, values in shown.items() for value in values if value]


def _place(author: int) -> str:
    return f"form/{author}"
