"""Accounts of operators and members: passwords, sign-in, and the limit on guessing."""

import hmac
import logging
import secrets
from datetime import datetime

from django.contrib.auth import authenticate
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tenants.actor import SYSTEM, Actor, ActorKind
from tenants.addresses import neighbourhood_of, network_of
from tenants.audit import audited
from tenants.crypto import purpose_key
from tenants.errors import EmailTaken, InvalidEmail, SignInRefused, TooManySignIns, WeakPassword, WrongPassword
from tenants.known_devices import device_known
from tenants.locks import user_lock
from tenants.models import OneTimeLink, SignInAttempt, User
from tenants.sign_in_limits import MOST_COUNTED, WINDOW, RecentAttempts, seconds_to_wait, seconds_to_wait_known

log = logging.getLogger("luminet.access")

EMAIL_LENGTH = 254  # limit of mail servers and of the column
MAX_PASSWORD_LENGTH = 256  # hashing megabytes would let a client keep the processor busy


def operator_create(*, email: str, password: str, actor: Actor = SYSTEM) -> User:
    """Create an operator's account."""
    with audited() as journal:
        user = _user_create(email=email, password=password, is_operator=True)
        journal.record(actor, "operator.create", user.email)
    return user


def email_check(value: str) -> str:
    """Return the address in its stored form, lower case. Raise InvalidEmail."""
    email = value.strip().lower()
    try:
        validate_email(email)
    except ValidationError:
        raise InvalidEmail(email) from None
    if len(email) > EMAIL_LENGTH or not email.isprintable():  # Django accepts a domain with invisible characters
        raise InvalidEmail(email)
    return email


def password_generate() -> str:
    return secrets.token_urlsafe(15)


def user_create(*, email: str, password: str) -> User:
    """Create a member's account for the web UI."""
    return _user_create(email=email, password=password, is_operator=False)


def password_set(*, user: User, new: str) -> None:
    """Set a new password for a person verified in another way. Sessions and password reset links end."""
    password_check(new, user)
    OneTimeLink.objects.filter(user=user, used_at=None).update(used_at=timezone.now())
    user.set_password(new)
    user.save(update_fields=["password"])


def password_change(*, user: User, current: str, new: str, address: str = "", request_id: str = "") -> None:
    """Set a new password. Every other session of this person ends."""
    if len(current) > MAX_PASSWORD_LENGTH or not user.check_password(current):
        raise WrongPassword
    with audited() as journal:
        password_set(user=user, new=new)
        kind = ActorKind.OPERATOR if user.is_operator else ActorKind.MEMBER
        actor = Actor(kind, str(user.pk), user.email, frozenset(), address=address, request_id=request_id)
        journal.record(actor, "password.change", user.email)
    log.info("password changed", extra={"user_id": user.pk})


def account_close(*, actor: Actor, user: User) -> User:
    """Close an account: sign-in, sessions, links and an operator's tokens stop working until it is opened again."""
    return _account_switch(actor, user, "account.close", is_active=False)


def account_open(*, actor: Actor, user: User) -> User:
    return _account_switch(actor, user, "account.open", is_active=True)


def _account_switch(actor: Actor, user: User, verb: str, *, is_active: bool) -> User:
    with audited() as journal:
        locked = user_lock(user)
        if locked.is_active != is_active:
            locked.is_active = is_active
            locked.save(update_fields=["is_active"])
            before, after = {"is_active": not is_active}, {"is_active": is_active}
            journal.record(actor, verb, locked.email, before=before, after=after)
    return locked


def sign_in(*, email: str, password: str, address: str, device: str = "", now: datetime) -> User:
    """Return the owner of these credentials. Raise SignInRefused, or TooManySignIns before the password is checked.

    `device` is this browser's cookie for the account, if any (`known_devices.py`).
    """
    attempt = attempt_begin(email=email, address=address, device=device_known(email, device), now=now)
    user = owner_of(email, password)
    if user is None:
        raise SignInRefused
    attempt.delete()
    return user


def owner_of(email: str, password: str) -> User | None:
    """Return the owner of these credentials, or None. Call it only after `attempt_begin`.

    An address without an account takes the same time.
    """
    user = authenticate(username=email, password=password) if len(password) <= MAX_PASSWORD_LENGTH else None
    return user if isinstance(user, User) else None


def attempt_begin(*, email: str, address: str, device: str = "", now: datetime) -> SignInAttempt:
    """Store the attempt, then check the limit.

    Of simultaneous attempts each sees the earlier ones, so none escapes it.
    """
    network = network_of(address)
    attempt = SignInAttempt.objects.create(email_hash=_email_hash(email), address=network, device=device, at=now)
    wait = _wait(attempt, now)
    if wait:
        attempt.delete()
        log.warning("sign-in held back", extra={"address": network, "wait_seconds": wait})
        raise TooManySignIns(retry_after_seconds=wait)
    return attempt


def _wait(attempt: SignInAttempt, now: datetime) -> int:
    window = SignInAttempt.objects.filter(at__gt=attempt.at - WINDOW).exclude(pk=attempt.pk)
    same_email = window.filter(email_hash=attempt.email_hash, device=attempt.device)
    if attempt.device:
        return seconds_to_wait_known(_times(same_email), now=now)
    recent = RecentAttempts(
        same_email_and_address=_times(same_email.filter(address=attempt.address)),
        same_email_and_neighbourhood=_times(same_email.filter(address__range=neighbourhood_of(attempt.address))),
        same_email=_times(same_email),
        same_address=_times(window.filter(address=attempt.address, device="")),
    )
    return seconds_to_wait(recent, now=now)


def _times(attempts: "QuerySet[SignInAttempt]") -> list[datetime]:
    """Return the newest times that can still matter, oldest first."""
    return list(attempts.order_by("-at").values_list("at", flat=True)[:MOST_COUNTED])[::-1]


def _email_hash(email: str) -> bytes:
    return hmac.digest(purpose_key("pepper", "sign-in attempts"), email.strip().lower().encode(), "sha256")


def _user_create(*, email: str, password: str, is_operator: bool) -> User:
    email = email_check(email)
    user = User(email=email, is_operator=is_operator, created_at=timezone.now())
    password_check(password, user)
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError:
        raise EmailTaken(email) from None
    return user


def password_check(password: str, user: User) -> None:
    if len(password) > MAX_PASSWORD_LENGTH:
        raise WeakPassword([f"This password has {len(password)} characters; {MAX_PASSWORD_LENGTH} is the most."])
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise WeakPassword(error.messages) from None
