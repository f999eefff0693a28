"""Errors that stop the stack, each one sentence that says what to do next."""


class StackError(Exception):
    """The message is printed as it is, and `make up` ends with status 1."""

    is_puzzling = False  # True: the message says what happened, not why; the doctor may know


class PortTaken(StackError):
    def __init__(self, *, host: str, port: int, setting: str) -> None:
        super().__init__(
            f"Port {port} on {host} is in use by another program: stop that, or set {setting} to a free port."
        )


class AlreadyRunning(StackError):
    def __init__(self, pid: int | None) -> None:
        by = f" (process {pid})" if pid else ""
        super().__init__(f"Luminet already runs from here{by}. `make down` stops it.")


class ChildFailed(StackError):
    is_puzzling = True

    def __init__(self, name: str, reason: str, log_file: str) -> None:
        super().__init__(f"{name} {reason}. Its log is {log_file}.")


class NoPulse(StackError):
    is_puzzling = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Nothing came from beat through the worker to the web within {seconds:.0f} s; see the logs.")


class VllmMissing(StackError):
    def __init__(self, why: str) -> None:
        super().__init__(
            "Nothing was started, because LUMINET_BACKENDS asks for vLLM and it is not to be had here "
            f"({why.rstrip('.')}): `make up` without BACKENDS runs our own engine in both agents."
        )
