"""Browsers that an account has signed in from: a signed word that is worth a bucket of attempts of its own, no more.

The OWASP device cookie. It signs nobody in, is good for one account, and ends with that account's password.
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
    """Return what an account's word is kept as. Without the pepper nobody tells whose it is."""
    digest = hmac.digest(purpose_key("pepper", "device names"), _spelled(email).encode(), "sha256")
    return digest.hex()[:NAME_LETTERS]


def device_issue(user: User) -> str:
    """Return a new word for a browser in which this person has just proven who they are."""
    return _signer(user).sign(secrets.token_urlsafe(16))


def device_known(email: str, word: str) -> str:
    """Return the device that the word stands for at this account, or nothing. Unknown accounts take as long."""
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
