"""What lies between the parties: a broker with a queue for each agent, and questions that may go without an answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from engine_agent.contracts.wire import Command
from tests.fleet_simulation.timeline import Timeline
from tests.fleet_simulation.weather import Weather

REDELIVERED_SECONDS = 10.0  # after which a message that nobody has acknowledged comes again
TIMEOUT_SECONDS = 5.0

Done = Callable[[], None]
Deliver = Callable[[Command, Done], None]
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Broker:
    """Messages wait until their agent is there, and come again until it has acknowledged them."""

    timeline: Timeline
    weather: Weather
    waiting: dict[str, list[Command]] = field(default_factory=dict)
    consumers: dict[str, Deliver] = field(default_factory=dict)
    wipes: int = 0
    overtakings: int = 0  # how often a message came after one that was sent later
    newest: dict[str, float] = field(default_factory=dict)  # by agent: when what came last was sent

    def send(self, agent: str, command: Command) -> None:
        if self.weather.strikes("loss"):
            return
        for _ in range(2 if self.weather.strikes("duplication") else 1):
            self.timeline.after(self.weather.delay_seconds(), lambda: self._arrive(agent, command))

    def join(self, agent: str, deliver: Deliver) -> None:
        self.consumers[agent] = deliver
        for command in self.waiting.pop(agent, []):
            self._arrive(agent, command)  # which may be the end of it

    def leave(self, agent: str) -> None:
        self.consumers.pop(agent, None)

    def wipe(self) -> None:
        """Restarted with nothing in it: what waited and what was handed out is forgotten."""
        self.waiting.clear()
        self.wipes += 1

    def _arrive(self, agent: str, command: Command) -> None:
        self.overtakings += command.issued_at < self.newest.get(agent, 0.0)
        self.newest[agent] = max(command.issued_at, self.newest.get(agent, 0.0))
        if agent in self.consumers:
            self._deliver(agent, command)
        else:
            self.waiting.setdefault(agent, []).append(command)

    def _deliver(self, agent: str, command: Command) -> None:
        wipes, is_done = self.wipes, False

        def done() -> None:
            nonlocal is_done
            is_done = True

        def again() -> None:
            if not is_done and wipes == self.wipes:
                self._arrive(agent, command)

        self.timeline.after(REDELIVERED_SECONDS, again)
        self.consumers[agent](command, done)


@dataclass(slots=True)
class Line:
    """Questions to the control plane. Each is answered, or fails after a while, whether it was heard or not."""

    timeline: Timeline
    weather: Weather

    def ask(self, serve: Callable[[], Answer | None], told: Callable[[Answer | None], None]) -> None:
        """`told` gets the answer or None, once."""
        is_told = False

        def tell(answer: Answer | None) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                told(answer)

        def heard() -> None:
            answer = serve()
            if answer is not None and not self.weather.strikes("loss"):
                self.timeline.after(self.weather.delay_seconds(), lambda: tell(answer))

        self.timeline.after(TIMEOUT_SECONDS, lambda: tell(None))
        if self.weather.strikes("loss"):
            return
        for _ in range(2 if self.weather.strikes("duplication") else 1):
            self.timeline.after(self.weather.delay_seconds(), heard)
