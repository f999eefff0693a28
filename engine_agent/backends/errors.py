"""What is wrong with a command's options."""

from engine_agent.engine.errors import EngineError


class BadOption(EngineError):
    """Options that do not go together, or name what is not there."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
