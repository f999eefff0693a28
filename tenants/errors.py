"""Errors of the domain, with messages for people. API and dashboard translate them; nothing here knows HTTP."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that is refused, and why."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class UnenforcedField(FieldProblem):
    """A policy field set to a value that no serving agent can enforce."""


class TenantsError(Exception):
    """The base class of this package's errors."""


class SignInRefused(TenantsError):
    """Wrong e-mail address or password, or a disabled account. The message does not reveal which."""

    def __init__(self) -> None:
        super().__init__("That e-mail address and password do not match an active account.")


class TooManySignIns(TenantsError):
    def __init__(self, *, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        minutes = max(1, -(-retry_after_seconds // 60))
        super().__init__(f"Too many attempts. Try again in {minutes} {'minute' if minutes == 1 else 'minutes'}.")


class WrongPassword(TenantsError):
    def __init__(self) -> None:
        super().__init__("That is not your current password.")


class WeakPassword(TenantsError):
    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


class InvalidFields(TenantsError):
    """One or more fields are refused, and the error lists all of them."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in self.problems))


class PublishRefused(InvalidFields):
    """A valid policy that the agents concerned must not apply."""


class InvalidEmail(InvalidFields):
    def __init__(self, value: str) -> None:
        super().__init__([FieldProblem("email", f"{value[:80]!r} is not an e-mail address")])


class Conflict(TenantsError):
    """A valid request that conflicts with existing objects."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in self.problems))


class EmailTaken(Conflict):
    def __init__(self, email: str) -> None:
        super().__init__([FieldProblem("email", f"{email!r} already has an account")])


class Taken(Conflict):
    def __init__(self, field: str, value: str, kind: str) -> None:
        super().__init__([FieldProblem(field, f"{value!r} is the {field} of another {kind}; choose a different one")])


class LimitReached(Conflict):
    def __init__(self, field: str, limit: int) -> None:
        super().__init__([FieldProblem(field, f"the limit is {limit}; ask your operator to raise it")])


class SharesExceeded(Conflict):
    """Reservations and pins of one group of agents exceed what may be reserved."""


class StaleRevision(TenantsError):
    def __init__(self, *, expected: str, actual: int) -> None:
        self.expected, self.actual = expected, actual
        super().__init__(f"expected revision {expected}, found {actual}: read it again, then decide anew")


class StalePlan(TenantsError):
    def __init__(self) -> None:
        super().__init__("the plan is out of date: something changed since. Plan again.")


class TooManyDeletes(Conflict):
    """A plan deletes more than its caller expects, usually because of a wrong file."""

    def __init__(self, deletes: int, max_deletes: int) -> None:
        count = f"this deletes {deletes} organisations and namespaces, and {max_deletes} is the most"
        super().__init__(
            [FieldProblem("max_deletes", f"{count}: look at the plan, and raise the limit if they may go")]
        )


class NotFound(TenantsError):
    """The object does not exist or belongs to another owner. The error does not reveal which."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"There is no such {kind}.")


class NotPermitted(TenantsError):
    """The caller is known and owns the object, but may not do this."""


class MissingScope(NotPermitted):
    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"This needs the scope {scope}, which your token does not have.")


class OutOfBounds(NotPermitted):
    """An organisation's members asked for more than their operator lets them change."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in self.problems))


class OrganisationSuspended(NotPermitted):
    def __init__(self) -> None:
        super().__init__("This organisation is suspended: it can be read, not changed. Ask your operator.")


class InvalidToken(TenantsError):
    """A bearer token is unknown, revoked or expired. The message does not reveal which."""

    def __init__(self) -> None:
        super().__init__("This token is not valid: it is unknown, revoked or expired.")


class LinkSpent(TenantsError):
    def __init__(self) -> None:
        super().__init__("This link has been used, has expired, or was replaced by a newer one. Ask for another.")


class AnswerNotKept(TenantsError):
    def __init__(self) -> None:
        super().__init__("Idempotency-Key: this request was carried out; its answer was too large to be kept.")


class IdempotencyKeyReused(TenantsError):
    def __init__(self) -> None:
        super().__init__("Idempotency-Key: was used within 24 hours for another request; choose a new one.")
