"""What can be wrong with what was asked, or with the server it was asked of."""


class LoadError(Exception):
    """Something the caller can put right; its text is for people."""


class BadOption(LoadError):
    """Options that do not go together."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option


class BadServer(LoadError):
    """It cannot be reached, or does not answer as an OpenAI server does."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url}: {problem}")
        self.url, self.problem = url, problem
