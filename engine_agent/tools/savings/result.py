"""The result: each side's figures, the share saved, and its confidence."""

from dataclasses import asdict, dataclass
from typing import Any

from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.savings.capacity import Room
from engine_agent.tools.savings.confidence import LEVEL, Estimate, estimate, percentile, reduction
from engine_agent.tools.savings.measuring import BOUND_SHARE, Found, Measured
from engine_agent.tools.savings.plan import SIDES, Plan, Side

STATISTICS = {"P50": percentile(0.5), "P99": percentile(0.99)}


@dataclass(frozen=True, slots=True)
class Saved:
    """One figure on both sides."""

    name: str
    unit: str
    sides: dict[Side, Estimate]
    share: Estimate  # by which the side with caching is lower


@dataclass(frozen=True, slots=True)
class Result:
    server: Server
    plan: Plan
    found: Found
    machine: str
    room: Room | None = None  # None: the size of the pool is not known
    kv_dtype: str | None = None

    @property
    def times(self) -> list[Saved]:
        with_, without = (self.found.sides[side].ttft_ms for side in SIDES)
        return [
            Saved(
                f"time to first token, {name}",
                "ms",
                {"with": estimate(statistic, with_), "without": estimate(statistic, without)},
                reduction(statistic, with_, without),
            )
            for name, statistic in STATISTICS.items()
        ]

    @property
    def cpu(self) -> Saved | None:
        """Return the server's CPU time for a single request, if known."""
        with_, without = (self.found.sides[side].cpu_seconds for side in SIDES)
        if not with_ or not without or not sum(without):
            return None
        median = STATISTICS["P50"]
        return Saved(
            "CPU time of one request, P50",
            "s",
            {"with": estimate(median, with_), "without": estimate(median, without)},
            reduction(median, with_, without),
        )

    def cost(self, side: Side) -> float:
        """Return the cost of 1,000 requests on a machine as busy as the bound allows."""
        return 1_000 * self.found.sides[side].machine_seconds * self.plan.price_per_hour / 3_600

    @property
    def cost_saved(self) -> float:
        return 1 - self.cost("with") / self.cost("without")

    def document(self) -> dict[str, Any]:
        """Return the result for programs, with every sample."""
        return {
            "url": self.server.url,
            "model": self.server.model,
            "machine": self.machine,
            "kv_dtype": self.kv_dtype,
            "plan": asdict(self.plan),
            "confidence": LEVEL,
            "figures": [asdict(figure) for figure in [*self.times, *([self.cpu] if self.cpu else [])]],
            "bound": {"ttft_ms": self.found.bound_ms, "share": BOUND_SHARE},
            "cost_of_1000_requests": {side: self.cost(side) for side in SIDES},
            "cost_saved": self.cost_saved,
            "room_in_memory": asdict(self.room) if self.room else None,
            **{side: _side(self.found.sides[side]) for side in SIDES},
        }


def _side(measured: Measured) -> dict[str, Any]:
    return {
        "ttft_ms": measured.ttft_ms,
        "cached_tokens": [outcome.cached_tokens for outcome in measured.outcomes],
        "prompt_tokens": [outcome.prompt_tokens for outcome in measured.outcomes],
        "cpu_seconds": measured.cpu_seconds,
        "together": measured.together,
        "machine_seconds": measured.machine_seconds,
        "trials": [asdict(trial) for trial in measured.trials],
    }
