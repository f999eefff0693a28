"""What can go wrong with a sidecar, for people to read. None of these names a secret."""


class SidecarError(Exception):
    """The root of this package's errors."""


class BadCredentials(SidecarError):
    """What is kept, or was told, is none."""


class BadHome(SidecarError):
    """A folder that cannot be used."""


class BadAddress(SidecarError):
    """A control plane, or its broker, that may not be spoken to like that."""


class CannotJoin(SidecarError):
    """The control plane would not have us."""


class ControlPlaneAway(SidecarError):
    """It did not answer, or not as it should: worth asking again, after `wait_seconds` at the least."""

    def __init__(self, message: str, wait_seconds: float = 0.0) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(message)


class ControlPlaneRefused(SidecarError):
    """It answered that we may not. `code` is its word for why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code = status, code
        super().__init__(f"{message} ({status} {code})")
