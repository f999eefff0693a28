"""What can be wrong with a trace or with what was asked: each names the line or the option, and what was found."""


class ReplayError(Exception):
    """Something the caller can put right; its text is for people."""


class BadLine(ReplayError):
    """A line of the trace that is no request."""

    def __init__(self, line: int, field: str, problem: str) -> None:
        super().__init__(f"line {line}: {field}: {problem}")
        self.line, self.field, self.problem = line, field, problem


class BadTrace(ReplayError):
    """A trace that cannot be replayed, by name, and why."""

    def __init__(self, name: str, problem: ReplayError) -> None:
        super().__init__(f"{name}: {problem}")


class EmptyTrace(ReplayError):
    """No request is left to replay."""


class BadOption(ReplayError):
    """Options that do not go together, or name what is not in the trace."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option


class CannotPlot(ReplayError):
    """Plots were asked for, and what draws them is not installed."""
