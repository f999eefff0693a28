"""A clock that moves only when a test says so."""


class HandClock:
    """Seconds, as the manager is given them. Whole and half seconds add up exactly."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, seconds
        self.seconds += seconds

    def set_to(self, seconds: float) -> None:
        assert seconds >= self.seconds, (self.seconds, seconds)
        self.seconds = seconds
