"""T1: lists, policies, snapshots and `apply` with ten thousand namespaces in a thousand organisations."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from tests.bench import Bench, Target, row, timed
from tests.bench.rest import Rest
from tests.bench.stacks import Stack, call_inside, fresh_home, stack_running

READS = 200
WRITES = 50
SNAPSHOTS = 10
APPLIES = 3
APPLIED_NAMESPACES = 1_000
PAGE = 50
LIST = Target("<=", 50, of="p95")
BIG, SMALL = "big", "org-0500"
SIZES = {"organisations": 1_000, "namespaces": 10_000}


@row(
    "T1",
    title="Control plane at 10,000 namespaces in 1,000 organisations",
    target="list p95 ≤ 50 ms · effective p95 ≤ 10 ms · snapshot ≤ 1 s, ≤ 5 MB · apply of 1,000 ≤ 20 s",
)
def tenants(bench: Bench) -> None:
    with fresh_home() as config, stack_running(config) as stack:
        filled = call_inside(stack, "tests.bench.tenants:fill")
        bench.note(f"filled in {filled['seconds']:.1f} s; audit trail sound: {'yes' if filled['is_sound'] else 'NO'}")
        with Rest(stack.address, filled["token"]) as rest:
            _lists(bench, rest)
            _policies(bench, rest)
        for kind in ("engine", "gateway"):
            _snapshots(bench, stack, kind)
        with Rest(stack.address, filled["token"]) as rest:  # the server has closed the idle one by now
            _apply(bench, rest)


def _lists(bench: Bench, rest: Rest) -> None:
    lists = {
        "organisations": "/orgs",
        "namespaces of one of 1,000": f"/orgs/{SMALL}/namespaces",
        "namespaces of the one with 1,009": f"/orgs/{BIG}/namespaces",
        "keys of the one with 300": f"/orgs/{BIG}/keys",
        "audit trail": "/audit",
    }
    for name, path in lists.items():
        first = f"{path}?limit={PAGE}"
        _reads(bench, f"list, {name}", LIST, partial(rest.ask, "GET", first), {"items": PAGE, **SIZES})
    for name in ("organisations", "namespaces of the one with 1,009", "audit trail"):
        pages = _walked(rest, lists[name])
        _reads(bench, f"list, {name}, deep pages", LIST, partial(next, pages), {"items": PAGE, **SIZES})
    whole = f"{lists['namespaces of the one with 1,009']}?limit=200"
    _reads(bench, "list, largest page", LIST, lambda: rest.ask("GET", whole), {"items": 200, **SIZES})


def _walked(rest: Rest, path: str) -> Iterator[int]:
    """Page after page to the last one, then from the front again."""
    cursor = None
    while True:
        at = f"&cursor={cursor}" if cursor else ""
        found = rest.ask("GET", f"{path}?limit={PAGE}{at}")
        cursor = found["next_cursor"]
        yield len(found["items"])


def _policies(bench: Bench, rest: Rest) -> None:
    one = f"/orgs/{SMALL}/namespaces/ns-0004/policy"
    number = count(1)
    _reads(bench, "effective policy of one", Target("<=", 10, of="p95"), lambda: rest.ask("GET", f"{one}/effective"))
    _writes(bench, "publish, one namespace", lambda: rest.ask("PUT", one, _draft(ttl_seconds=900 + next(number))))
    _writes(bench, "publish, the fleet", lambda: rest.ask("PUT", "/policy", _draft(ttl_seconds=900 + next(number))))
    _writes(bench, "preview, one namespace", lambda: rest.ask("POST", f"{one}/preview", _draft(ttl_seconds=77)))
    _writes(bench, "preview, the fleet", lambda: rest.ask("POST", "/policy/preview", _draft(kv_dtype="int4")))


def _draft(**policy: Any) -> dict[str, Any]:
    return {"policy": policy}


def _reads(
    bench: Bench, name: str, target: Target, work: Callable[[], object], parameters: dict[str, Any] | None = None
) -> None:
    sample = timed(work, unit="ms")
    bench.measure(name, unit="ms", sample=sample, repetitions=READS, warmup=10, target=target, parameters=parameters)


def _writes(bench: Bench, name: str, work: Callable[[], object]) -> None:
    bench.measure(name, unit="ms", sample=timed(work, unit="ms"), repetitions=WRITES, warmup=2, parameters=SIZES)


def _apply(bench: Bench, rest: Rest) -> None:
    """New organisations with a thousand namespaces each; then the same file again."""
    slugs = (f"applied-{number}" for number in count())
    documents: list[dict[str, Any]] = []

    def first() -> None:
        documents.append({"document": _document(next(slugs)), "prune": False})
        rest.ask("POST", "/config/apply", documents[-1])

    sizes = {"namespaces in the file": APPLIED_NAMESPACES, **SIZES}
    for name, work in (("apply, everything new", first), ("apply, nothing new", lambda: _again(rest, documents[-1]))):
        bench.measure(
            name,
            unit="s",
            sample=timed(work),
            repetitions=APPLIES,
            warmup=0,
            target=Target("<=", 20, of="max"),
            parameters=sizes,
        )
    before = _newest(rest)
    _again(rest, documents[-1])
    bench.record("apply, nothing new: audit records", unit="", values=[_newest(rest) - before], target=Target("==", 0))


def _again(rest: Rest, document: dict[str, Any]) -> None:
    rest.ask("POST", "/config/apply", document)


def _newest(rest: Rest) -> int:
    return int(rest.ask("GET", "/audit?limit=1")["items"][0]["seq"])


def _document(slug: str) -> dict[str, Any]:
    namespaces = {
        f"ns-{number:04}": {"policy": {"ttl_seconds": 60 + number, "models": {"m": {"weight": 2.0}}}}
        for number in range(APPLIED_NAMESPACES)
    }
    return {"version": 1, "organisations": {slug: {"policy": {"ttl_seconds": 600}, "namespaces": namespaces}}}


def _snapshots(bench: Bench, stack: Stack, kind: str) -> None:
    """In a process of its own on the stack's database: what the worker that pushes will do."""
    found = call_inside(stack, "tests.bench.snapshots:measure", kind, bench.repetitions(SNAPSHOTS))
    sizes = {"namespaces": found["namespaces"], "different policies": found["policies"]}
    second = Target("<=", 1_000, of="max")
    bench.record(f"snapshot of one {kind}", unit="ms", values=found["build"], target=second, parameters=sizes)
    bench.record(f"snapshot of one {kind}, encoding", unit="ms", values=found["encode"], parameters=sizes)
    size = [found["snapshot_bytes"] / 1e6]
    bench.record(f"snapshot of one {kind}, size", unit="MB", values=size, target=Target("<=", 5), parameters=sizes)
    bench.record(f"{kind}: after one publish", unit="ms", values=found["one_publish"], parameters=sizes)
    big = {"namespaces of that organisation": 1_009, **sizes}
    bench.record(f"{kind}: after one publish of the big one", unit="ms", values=found["big_publish"], parameters=big)
    bench.record(f"{kind}: after nothing", unit="ms", values=found["nothing"], parameters=sizes)
    bench.record(f"{kind}: after a publish for the fleet", unit="ms", values=found["fleet_publish"], parameters=sizes)
    bench.record(f"{kind}: change of one publish", unit="B", values=found["change_bytes"], parameters=sizes)
