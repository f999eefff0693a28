"""Commands for an administrator with database access: operators, tokens, links, the audit trail, the master key."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from django.conf import settings
from django.db import OperationalError

from controlplane.client.asking import working
from tenants.actor import SYSTEM
from tenants.anchor_file import anchors_read
from tenants.anchors import Compared, anchors_compare
from tenants.audit import audit_lines, audit_verify
from tenants.errors import EmailTaken, TenantsError
from tenants.models import AuditRecord, User
from tenants.services.keys import operator_token_create
from tenants.services.master_key import master_key_rotate
from tenants.services.members import reset_link
from tenants.services.operators import account_take_over
from tenants.services.people import operator_create, password_generate

P = ParamSpec("P")


def _on_the_database(command: Callable[P, int]) -> Callable[P, int]:
    """Wrap a command so that a database that does not answer, or stops answering, ends it with one sentence."""

    @wraps(command)
    def told(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except OperationalError as error:
            reason, _, _ = str(error).strip().partition("\n")
            return _failed(f"the database does not answer: {reason}")

    return told


@_on_the_database
def create_operator(email: str, *, takes_over: bool = False) -> int:
    password = password_generate()
    try:
        user = _operator_make(email, password, takes_over)
    except EmailTaken as error:
        advice = "" if takes_over else "; --take-over makes an operator's of it: new password, no memberships any more"
        return _failed(f"{error}{advice}")
    except TenantsError as error:
        return _failed(str(error))
    print(json.dumps({"email": user.email, "password": password}, indent=2))
    return 0


def _operator_make(email: str, password: str, takes_over: bool) -> User:
    try:
        return operator_create(email=email, password=password)
    except EmailTaken:
        if not takes_over:
            raise
        user, left_organisations = account_take_over(email=email, password=password)
    print(
        f"{user.email} had an account: it is an operator's now. Its password is new, its sessions ended.",
        file=sys.stderr,
    )
    if left_organisations:
        print(f"It is no member any more of: {', '.join(left_organisations)}", file=sys.stderr)
    return user


@_on_the_database
def operator_token(email: str, *, name: str, scopes: list[str], as_json: bool = False) -> int:
    operator = User.objects.filter(email=email.strip().lower(), is_operator=True, is_active=True).first()
    if operator is None:
        return _failed(f"email: {email[:80]!r} is no active operator; luminet create-operator makes one")
    try:
        token, secret = operator_token_create(actor=SYSTEM, user=operator, name=name, scopes=scopes)
    except TenantsError as error:
        return _failed(str(error))
    facts = {"email": operator.email, "name": token.name, "scopes": sorted({*scopes}), "secret": secret.secret}
    _told(facts, as_json, secret.secret)
    return 0


@_on_the_database
def password_reset_link(email: str, *, as_json: bool = False) -> int:
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        return _failed(f"email: {email[:80]!r} has no active account")
    link = reset_link(actor=SYSTEM, user=user)
    url = f"{settings.ENVIRONMENT.base_url}{link.path}"
    facts = {"email": user.email, "url": url, "expires_at": f"{link.expires_at:%Y-%m-%dT%H:%M:%SZ}"}
    _told(facts, as_json, url)
    print(f"works once, until {link.expires_at:%Y-%m-%d %H:%M} UTC", file=sys.stderr)
    return 0


@_on_the_database
def rotate_master_key(*, as_json: bool = False) -> int:
    count = master_key_rotate()
    words = f"{count} secrets encrypted anew; LUMINET_PREVIOUS_MASTER_KEY is not needed any more"
    _told({"encrypted_anew": count}, as_json, words)
    return 0


@_on_the_database
def audit_check(remembered_head: str | None, *, anchor_file: str | None = None, as_json: bool = False) -> int:
    with _counting(sys.stderr.isatty()) as progress:
        verdict = audit_verify(remembered_head=remembered_head, seen=progress)
    try:
        compared = None if anchor_file is None else _anchors_compared(Path(anchor_file))
    except OSError as error:
        return _failed(f"--anchor: {anchor_file}: {error.strerror}")
    problems = [*([verdict.problem] if verdict.problem else []), *(compared.problems if compared else ())]
    if as_json:
        facts = {"sound": not problems, "records": verdict.records, "head": verdict.head, "problem": verdict.problem}
        print(json.dumps({**facts, "anchors": None if compared is None else asdict(compared)}, indent=2))
        return 1 if problems else 0
    if verdict.problem is not None:
        _failed(f"the audit trail is not sound: {verdict.problem} ({verdict.records} records before it are)")
    for problem in compared.problems if compared else ():
        _failed(f"the audit trail does not fit its anchors: {problem}")
    if problems:
        return 1
    print(f"{verdict.records} records, each as it was written")
    if compared is not None:
        print(_anchors_fit(compared))
    print(f"head {verdict.head}")
    return 0


def _anchors_compared(file: Path) -> Compared:
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    lines = anchors_read(file)
    compared = anchors_compare(lines.anchors)
    return replace(compared, problems=(*lines.damaged, *compared.problems))


def _anchors_fit(compared: Compared) -> str:
    restored = f"; {compared.set_back} are of before a restore that the trail records" if compared.set_back else ""
    return f"{compared.anchors} anchors, none of which the trail lacks{restored}"


@_on_the_database
def audit_export(*, after: int = 0) -> int:
    with _counting(sys.stderr.isatty() and not sys.stdout.isatty()) as progress:
        for line in audit_lines(AuditRecord.objects.filter(seq__gt=after), seen=progress):
            print(line)
    return 0


@contextmanager
def _counting(is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts records, and show the count at the terminal if `is_shown`."""
    count = 0

    def seen(records: int) -> None:
        nonlocal count
        count += records

    if not is_shown:
        yield seen
        return
    with working(lambda: f"{count:,} records"):
        yield seen


def _told(facts: Mapping[str, object], as_json: bool, words: str) -> None:
    print(json.dumps(facts, indent=2) if as_json else words)


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
