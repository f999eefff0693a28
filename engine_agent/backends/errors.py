"""Errors in a command's options."""

from engine_agent.engine.errors import EngineError


class BadOption(EngineError):
    """Options that contradict each other or name something that does not exist."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
