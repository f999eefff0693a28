"""A2: the rolling 24 hours, with a day of a thousand namespaces on four agents stored."""

from tests.bench import Bench, Target, row
from tests.bench.stacks import call_inside, fresh_home, stack_running

NAMESPACES, AGENTS = 1_000, 4
READS = 100
TARGETS = {
    "24 hours of one namespace": Target("<=", 20, of="p95"),
    "24 hours of the fleet": Target("<=", 100, of="p95"),
}


@row(
    "A2",
    title="24-hour stats query, 1,000 namespaces × 1,440 minutes × 4 agents stored",
    target="p95 ≤ 20 ms one namespace · ≤ 100 ms the fleet",
)
def usage_windows(bench: Bench) -> None:
    with fresh_home() as config, stack_running(config) as stack:
        filled = call_inside(stack, "tests.bench.stored_usage:fill", NAMESPACES, AGENTS)
        bench.note(f"{filled['rows']:,} rows of minutes stored and rolled up in {filled['seconds']:.0f} s")
        found = call_inside(stack, "tests.bench.stored_usage:measure", filled["now"], bench.repetitions(READS))
    sizes = {"namespaces": NAMESPACES, "agents": AGENTS, "rows": filled["rows"]}
    for name, values in found.items():
        bench.record(name, unit="ms", values=values, target=TARGETS.get(name), parameters=sizes)
