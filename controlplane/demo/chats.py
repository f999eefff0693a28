"""The prompts of the demo's traffic: four customers who use a cache well or badly. Pure.

The texts are invented. Each pattern has its own namespace, so a page about that namespace shows only this pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

Messages = list[dict[str, str]]
MOST_TOKENS: Final = 8  # of an answer: the demo is about prompts
QUESTIONS: Final = (
    "What does {name} do?",
    "When would I use {name}?",
    "Explain {name} in one sentence.",
    "How do I call {name}?",
    "What does {name} return?",
    "Can {name} fail, and how?",
)
NAMES: Final = (
    "json.dumps", "os.path.join", "re.sub", "asyncio.gather", "itertools.chain", "functools.lru_cache", "heapq.merge",
    "bisect.insort", "csv.reader", "shutil.copytree", "pathlib.Path", "random.choice", "string.Template", "zip",
)  # fmt: skip
PEOPLE: Final = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "John", "Katherine", "Ken", "Lynn", "Niklaus")
HELP_DESK: Final = (
    "You are the help desk of Acme, a company whose customers write Python. Be short, exact and kind. "
    "Answer only what is asked. If a question is about something else than Python's standard library, say so. "
    "Never guess: a wrong answer costs a customer an afternoon. Name the module before the function. "
    "Give the arguments in the order in which they are written, and say which of them have defaults. "
    "If a function can raise, name the exception and when. If there is a newer way to do the same, name it last. "
    "Do not repeat the question. Do not apologise. Do not offer further help at the end. "
)
CODING: Final = (
    "You are a coding agent of Globex. You work in a repository with these folders: core, web, jobs, tests, docs. "
    "Read before you write. Change as little as will do. Every change has a test that fails without it. "
    "You may call: read(path), search(text), edit(path, old, new), run(command). One call at a time. "
    "Paths begin at the repository's root. Commands run for a minute at most. Nothing leaves this machine. "
    "Functions are short, names are whole words, comments say why. Types everywhere; no warnings. "
    "When you are done, say what changed in one sentence, and what you did not do in another. "
)
RULES: Final = (
    "These rules hold for every answer. Be short. Say what the function does, then its arguments, then its value. "
    "Use the present tense. Leave examples out unless they are asked for. Mention the module once. "
    "Where two functions do nearly the same, say in one sentence how they differ, and stop there. "
    "If the question names no function, ask which one is meant. Numbers are written as digits. "
)


@dataclass(slots=True)
class Chats:
    """Conversations of several turns with the same system prompt; each turn hits the turns before it."""

    system: str
    turns: int
    chance: Random
    said: Messages = field(default_factory=list)

    def asks(self) -> list[Messages]:
        if len(self.said) >= 2 * self.turns:
            self.said = []
        self.said.append(_user(_question(self.chance)))
        return [[_system(self.system), *self.said]]

    def answered(self, text: str) -> None:
        self.said.append({"role": "assistant", "content": text})

    def failed(self) -> None:
        """Drop the conversation, so the next request starts a new one."""
        self.said = []


@dataclass(slots=True)
class NameFirst:
    """Badly structured prompts: the user's name comes first, so the long rules after it miss for every user."""

    chance: Random
    count: int = 0

    def asks(self) -> list[Messages]:
        self.count += 1
        greeting = f"{self.chance.choice(PEOPLE)} (customer {self.count}) asks you. "
        return [[_system(greeting + RULES), _user(_question(self.chance))]]

    def answered(self, text: str) -> None:
        """Ignore the answer: the next request does not build on it."""

    def failed(self) -> None:
        """Do nothing: the next request does not build on this one."""


@dataclass(slots=True)
class Flood:
    """A batch of prompts that are all different: it hits nothing and takes cache space from the other customers."""

    size: int
    words: int
    chance: Random

    def asks(self) -> list[Messages]:
        return [[_user("Summarise: " + " ".join(self._words()))] for _ in range(self.size)]

    def answered(self, text: str) -> None:
        """Ignore the answer."""

    def failed(self) -> None:
        """Do nothing: the next batch has different prompts."""

    def _words(self) -> Sequence[str]:
        return [f"{self.chance.choice(NAMES)} {self.chance.randrange(10_000)}" for _ in range(self.words)]


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of the demo: its namespace, its pattern of prompts and how often it sends them."""

    name: str
    organisation: str
    namespace: str
    every_seconds: float
    way: "Chats | NameFirst | Flood"


def customers(seed: int) -> list[Customer]:
    """Return the customers, together about one request in two seconds. A new seed avoids hits on earlier floods."""
    chance = Random(seed)
    return [
        Customer("shared system prompt", "acme", "support-bot", 5.0, Chats(HELP_DESK, 3, chance)),
        Customer("multi-turn chats", "globex", "agents", 7.0, Chats(CODING, 8, chance)),
        Customer("a user's name first", "acme", "default", 11.0, NameFirst(chance)),
        Customer("a flooder", "initech", "nightly", 60.0, Flood(5, 60, chance)),
    ]


def _question(chance: Random) -> str:
    return chance.choice(QUESTIONS).format(name=chance.choice(NAMES))


def _system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
