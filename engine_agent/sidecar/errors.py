"""Errors of a sidecar, with messages for people. No message contains a secret."""


class SidecarError(Exception):
    """The base class of this package's errors."""


class BadCredentials(SidecarError):
    """Saved or received credentials are invalid."""


class BadHome(SidecarError):
    """A folder cannot be used."""


class BadAddress(SidecarError):
    """The address of the control plane or its broker is invalid or insecure."""


class CannotJoin(SidecarError):
    """The control plane refuses to enrol this machine."""


class ControlPlaneAway(SidecarError):
    """The control plane did not answer, or answered wrongly. Retry after at least `wait_seconds`."""

    def __init__(self, message: str, wait_seconds: float = 0.0) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(message)


class ControlPlaneRefused(SidecarError):
    """The control plane refused the request, with `code` as the reason."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code = status, code
        super().__init__(f"{message} ({status} {code})")
