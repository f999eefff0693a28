"""What goes wrong in a run, drawn from its seed: how likely each thing is, and whether it happens this time.

Some runs are calm, some have one kind of trouble only, some have all of it: a fault that hides behind another would
never be found by always having both.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Literal

TROUBLES = (
    "loss",
    "duplication",
    "delay",
    "crashes",
    "engine_crashes",
    "skew",
    "wiped_broker",
    "stalls",
    "corruption",
    "overlap",
)


Kind = Literal["loss", "duplication", "crashes", "engine_crashes", "wiped_broker", "stalls", "corruption", "power_cuts"]


@dataclass(slots=True)
class Weather:
    """`loss` and the like are probabilities for each message, or for each point at which a party may crash."""

    random: Random
    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.02  # the typical one, in seconds
    crashes: float = 0.0  # at each point between two effects of any party
    engine_crashes: float = 0.0  # by second
    wiped_broker: float = 0.0  # by second
    stalls: float = 0.0  # by second: a party that does nothing for a while
    corruption: float = 0.0  # of a file, at each restart
    power_cuts: float = 0.5  # of all ends: the rest lose nothing that was written
    overlap: float = 0.02  # seconds between what a planner reads and what it writes
    skew_seconds: float = 0.0  # the farthest that an agent's clock may be off
    is_over: bool = False
    struck: "Counter[str]" = field(default_factory=Counter)

    def strikes(self, kind: Kind) -> bool:
        probability: float = getattr(self, kind)
        if self.is_over or probability <= 0 or self.random.random() >= probability:
            return False
        self.struck[kind] += 1
        return True

    def delay_seconds(self) -> float:
        """Mostly short, sometimes very long: so messages overtake one another."""
        if self.is_over:
            return 0.01
        return self.random.expovariate(1 / self.delay)

    def overlap_seconds(self) -> float:
        return 0.01 if self.is_over else self.random.expovariate(1 / self.overlap)

    def clear(self) -> None:
        self.is_over = True


def weather_of(random: Random) -> Weather:
    weather = Weather(random)
    kinds = [one for one in TROUBLES if random.random() < 0.4]
    strength = random.choice((0.3, 1.0, 1.0, 2.5))
    for kind in kinds:
        _set(weather, kind, strength)
    return weather


def _set(weather: Weather, kind: str, strength: float) -> None:
    match kind:
        case "loss":
            weather.loss = min(0.6, 0.15 * strength)
        case "duplication":
            weather.duplication = min(0.6, 0.2 * strength)
        case "delay":
            weather.delay = 1.5 * strength
        case "crashes":
            weather.crashes = 0.01 * strength
        case "engine_crashes":
            weather.engine_crashes = 0.05 * strength
        case "wiped_broker":
            weather.wiped_broker = 0.05 * strength
        case "stalls":
            weather.stalls = 0.03 * strength
        case "corruption":
            weather.corruption = 0.3 * strength
        case "overlap":
            weather.overlap = 0.5 * strength
        case "skew":
            weather.skew_seconds = 600.0 * strength
