"""Checks of slugs, names, notes and expiry dates, the same for every interface. No I/O."""

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from tenants.errors import FieldProblem, InvalidFields
from tenants.models.organisations import SLUG_PATTERN

_SLUG = re.compile(SLUG_PATTERN)
NAME_LENGTH = 100
NOTE_LENGTH = 500
ENDS_WITHIN = timedelta(days=36_525)
# Control and format characters, surrogates and the like: invisible, or able to make text look like other text.
_UNWELCOME = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def slug_check(value: str, field: str = "slug") -> str:
    if not _SLUG.fullmatch(value):
        problem = "1 to 63 of a-z, 0-9 and inner hyphens are a slug"
        raise InvalidFields([FieldProblem(field, f"{value[:80]!r} is none: {problem}")])
    return value


def name_check(value: str, field: str = "name", *, may_be_empty: bool = False) -> str:
    """Return the name, trimmed and in one Unicode form, so that names that look the same are equal."""
    name = unicodedata.normalize("NFC", value).strip()
    if not name and not may_be_empty:
        raise InvalidFields([FieldProblem(field, "is empty")])
    _text_check(name, field, NAME_LENGTH, allowed="")
    return name


def note_check(value: str, field: str = "note") -> str:
    note = unicodedata.normalize("NFC", value).strip()
    _text_check(note, field, NOTE_LENGTH, allowed="\n\t")
    return note


def ending_check(value: datetime | None, field: str = "expires_at") -> datetime | None:
    """Check an expiry date, None for never. The database can store years that Python cannot read."""
    now = timezone.now()
    if value is not None and value <= now:
        raise InvalidFields([FieldProblem(field, f"{value.isoformat()} has passed")])
    if value is not None and value > now + ENDS_WITHIN:
        raise InvalidFields([FieldProblem(field, "is more than 100 years ahead; leave it out for never")])
    return value


def all_checked(*checks: Callable[[], Any]) -> list[Any]:
    """Return the results of all checks, or raise all problems in one error."""
    answers: list[Any] = []
    errors: list[InvalidFields] = []
    for check in checks:
        try:
            answers.append(check())
        except InvalidFields as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InvalidFields(problem for error in errors for problem in error.problems)
    return answers


def _text_check(value: str, field: str, limit: int, *, allowed: str) -> None:
    if len(value) > limit:
        raise InvalidFields([FieldProblem(field, f"has {len(value)} characters, {limit} is the most")])
    for letter in value:
        if letter not in allowed and unicodedata.category(letter) in _UNWELCOME:
            raise InvalidFields(
                [FieldProblem(field, f"holds the character U+{ord(letter):04X}, which cannot be shown")]
            )
