"""Known browsers of an account: a signed cookie that gives a browser its own limit of sign-in attempts.

This is OWASP's device cookie. It signs no user in, is valid for one account, and ends with that account's password.
"""

import hmac
import secrets
from datetime import timedelta

from django.core.signing import BadSignature, TimestampSigner

from tenants.crypto import purpose_key
from tenants.models import User

LASTS = timedelta(days=180)
NAME_LETTERS = 12
_NOBODY = User(pk=0)


def device_name(email: str) -> str:
    """Return the cookie's name for an account. Without the pepper it does not reveal the account."""
    digest = hmac.digest(purpose_key("pepper", "device names"), _spelled(email).encode(), "sha256")
    return digest.hex()[:NAME_LETTERS]


def device_issue(user: User) -> str:
    """Return a new cookie for a browser in which this person has just signed in."""
    return _signer(user).sign(secrets.token_urlsafe(16))


def device_known(email: str, word: str) -> str:
    """Return the device id in the cookie of this account, or "". Unknown accounts take the same time."""
    if not word:
        return ""
    user = User.objects.filter(email=_spelled(email)).first()
    try:
        device = _signer(user or _NOBODY).unsign(word, max_age=LASTS)
    except BadSignature:
        return ""
    return device if user else ""


def _signer(user: User) -> TimestampSigner:
    return TimestampSigner(salt=f"known device\0{user.pk}\0{user.password}")


def _spelled(email: str) -> str:
    return email.strip().lower()
