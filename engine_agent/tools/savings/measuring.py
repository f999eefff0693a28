"""Measure both sides on one server: one request at a time for the times, then as many at once as a bound allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.asking import ask
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.running import send_together
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.summary import quantile, summary_of
from engine_agent.tools.savings.capacity import most_within
from engine_agent.tools.savings.plan import SIDES, Plan, Prompts, Side

LEAST_SHARE = 0.9  # of the template, for a request to count as a hit
FEWEST_AT_ONCE = 8  # requests of a trial; 3 for each at once above that
BOUND_SHARE = 0.95
BOUND_FACTOR = 4.0

OnStep = Callable[[str, int, int], None]
CpuSeconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial with `together` requests at once: its throughput, and whether first tokens came in time."""

    together: int
    requests: int
    requests_per_second: float
    ttft_ms: float  # the BOUND_SHARE quantile
    is_within: bool


@dataclass(slots=True)
class Measured:
    """All measurements of one side."""

    outcomes: list[Outcome] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)  # of the server, for each outcome; empty: not known
    trials: list[Trial] = field(default_factory=list)
    together: int = 0

    @property
    def ttft_ms(self) -> list[float]:
        return [1000 * (outcome.ttft_seconds or 0.0) for outcome in self.outcomes]

    @property
    def machine_seconds(self) -> float:
        """Return the time per request with the server as busy as the bound allows, or alone if it allows no more."""
        within = [trial.requests_per_second for trial in self.trials if trial.is_within]
        return 1 / max(within or [trial.requests_per_second for trial in self.trials])


@dataclass(frozen=True, slots=True)
class Found:
    sides: dict[Side, Measured]
    bound_ms: float


async def measure(
    opened: aiohttp.ClientSession,
    server: Server,
    plan: Plan,
    prompts: Prompts,
    *,
    cpu_seconds: CpuSeconds | None = None,
    on_step: OnStep,
) -> Found:
    """Return the measurements of both sides. Raises ToolError."""
    sides: dict[Side, Measured] = {side: Measured() for side in SIDES}
    for side in SIDES:  # computes the template once, and warms the server up
        _checked(await ask(opened, server, prompts.next(side)))
    for number in range(plan.rounds):
        on_step("one at a time", number, plan.rounds)
        for side in SIDES if number % 2 else SIDES[::-1]:
            cpu_before = cpu_seconds() if cpu_seconds else 0.0
            outcome = _checked(await ask(opened, server, prompts.next(side)))
            sides[side].outcomes.append(outcome)
            if cpu_seconds:
                sides[side].cpu_seconds.append(cpu_seconds() - cpu_before)
    check_sides(sides, plan)
    bound_ms = plan.bound_ms or BOUND_FACTOR * quantile(sorted(sides["without"].ttft_ms), 0.5)
    await _trials(opened, server, plan, prompts, sides, bound_ms, on_step)
    return Found(sides, bound_ms)


async def _trials(
    opened: aiohttp.ClientSession,
    server: Server,
    plan: Plan,
    prompts: Prompts,
    sides: dict[Side, Measured],
    bound_ms: float,
    on_step: OnStep,
) -> None:
    for side in SIDES:

        async def holds(concurrency: int, side: Side = side) -> bool:
            on_step(f"{side} caching, {concurrency} at once", 0, 1)
            # The other side's prompts may have evicted the template; that is not a cost of this side.
            _checked(await ask(opened, server, prompts.next(side)))
            workload = [prompts.next(side) for _ in range(max(FEWEST_AT_ONCE, 3 * concurrency))]
            outcomes = await send_together(opened, server, workload, concurrency=concurrency)
            trial = trial_of(concurrency, [_checked(outcome) for outcome in outcomes], bound_ms)
            sides[side].trials.append(trial)
            return trial.is_within

        sides[side].together = await most_within(holds, plan.most_together)


def trial_of(concurrency: int, outcomes: Sequence[Outcome], bound_ms: float) -> Trial:
    ttft_ms = 1000 * quantile(sorted(outcome.ttft_seconds or 0.0 for outcome in outcomes), BOUND_SHARE)
    rate = summary_of(outcomes).requests_per_second
    return Trial(concurrency, len(outcomes), rate, ttft_ms, is_within=ttft_ms <= bound_ms)


def check_sides(sides: dict[Side, Measured], plan: Plan) -> None:
    """Raise ToolError if a side did not behave as its name says, because its figures would be wrong."""
    cached = {side: [outcome.cached_tokens for outcome in measured.outcomes] for side, measured in sides.items()}
    reported = {side: [tokens for tokens in all_ if tokens is not None] for side, all_ in cached.items()}
    if any(len(reported[side]) < len(cached[side]) for side in SIDES):
        raise ToolError("the server does not say how many prompt tokens came from its cache (cached_tokens)")
    # A template as text may be a few tokens longer or shorter than planned.
    prompt = quantile(sorted(outcome.prompt_tokens for outcome in sides["with"].outcomes), 0.5)
    least = LEAST_SHARE * plan.template_tokens * prompt / plan.prompt_tokens
    if (fewest := min(reported["with"])) < least:
        raise ToolError(
            f"with caching, {fewest:,} of a template of {plan.template_tokens:,} tokens came from the cache: "
            "caching is off, or the pool is too small to keep the template beside one other prompt"
        )
    if (most := max(reported["without"])) > (1 - LEAST_SHARE) * plan.prompt_tokens:
        raise ToolError(f"without caching, {most:,} tokens of a prompt that nobody had sent came from the cache")


def _checked(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        raise ToolError(f"a request failed: {outcome.error}" + (f" ({outcome.detail})" if outcome.detail else ""))
    return outcome
