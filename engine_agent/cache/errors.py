"""Errors that a caller of the cache can cause; each names the field and the value. Internal mistakes are asserts."""

from engine_agent.cache.words import sizes_apart


class CacheError(Exception):
    """Root of this package's errors."""

    def __init__(self, field: str, value: object, message: str) -> None:
        self.field = field
        self.value = value
        self.message = message
        super().__init__(f"{field}: {message}")


class InvalidValue(CacheError):
    """A value that no pool, policy or request can have: the wrong type, or out of range."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(field, value, f"expected {expected}, found {value!r}")


class UnknownFormat(CacheError):
    def __init__(self, kv_format: object, *, known: tuple[str, ...]) -> None:
        super().__init__("kv_format", kv_format, f"this pool holds {', '.join(known)}, found {kv_format!r}")


class UnknownNamespace(CacheError):
    def __init__(self, namespace: object) -> None:
        super().__init__("namespace", namespace, f"no namespace {namespace!r} is known here")


class NeverFits(CacheError):
    """A request needs more than this pool, or its namespace's limit, can ever provide. Waiting would not help."""

    def __init__(self, field: str, *, wanted_bytes: int, most_bytes: int, what: str = "the pool") -> None:
        self.wanted_bytes = wanted_bytes
        self.most_bytes = most_bytes
        wanted_text, most_text = sizes_apart(wanted_bytes, most_bytes)
        super().__init__(field, wanted_bytes, f"{wanted_text} wanted, {what} has {most_text}")


class ClockWentBack(CacheError):
    def __init__(self, *, last_seconds: float, found_seconds: float) -> None:
        super().__init__("clock", found_seconds, f"the clock went back from {last_seconds} to {found_seconds}")


class ClockStandsStill(CacheError):
    """The clock does not move (or is not a number), so nothing can expire."""

    def __init__(self, found_seconds: float, *, steps: int) -> None:
        super().__init__("clock", found_seconds, f"the clock has said {found_seconds} for {steps} steps")


class PinOverBudget(CacheError):
    def __init__(self, pin_id: str, *, wanted_bytes: int, budget_bytes: int) -> None:
        self.wanted_bytes = wanted_bytes
        self.budget_bytes = budget_bytes
        wanted_text, left_text = sizes_apart(wanted_bytes, budget_bytes)
        super().__init__("pin", pin_id, f"{wanted_text} wanted, {left_text} left of the pins' budget")


class UnknownPin(CacheError):
    def __init__(self, pin_id: object) -> None:
        super().__init__("pin", pin_id, f"no pin {pin_id!r} is known here")


class SequenceReleased(CacheError):
    def __init__(self, sequence: object, *, verb: str) -> None:
        super().__init__("sequence", sequence, f"cannot {verb} a sequence that is {sequence}")


class WaitingRoomFull(CacheError):
    """The waiting room is full: a request must leave before another can wait."""

    def __init__(self, waiting: int) -> None:
        super().__init__("waiting", waiting, f"{waiting} requests wait already, which is all that may")
