"""What can go wrong in the domain, in words for people. Faces translate these; nothing here knows HTTP."""


class TenantsError(Exception):
    """The root of this package's errors."""


class SignInRefused(TenantsError):
    """Wrong e-mail address or password, or an account that may not sign in: never said which."""

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


class InvalidEmail(TenantsError):
    def __init__(self, value: str) -> None:
        super().__init__(f"email: {value[:80]!r} is not an e-mail address")


class EmailTaken(TenantsError):
    def __init__(self, email: str) -> None:
        super().__init__(f"email: {email!r} already has an account")
