"""A fleet that has been lived in: a day and more of traffic, of alerts, rollouts, pins and people, beside row T1's
thousand organisations. What row W1 asks its pages of; made in bulk, within a minute.

For the database of a stack: tests/bench/inside.py calls `fill` there.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from django.db import connection
from django.utils import timezone

from controlplane.alerts.models import Alert, AlertEvent, AlertRule
from controlplane.analytics.columns import CACHE_KIND, CUSTOMER_KIND
from controlplane.analytics.models import Divergence, PoolMinute, Residence, ReuseCurve, Rolled
from controlplane.analytics.partitions import partitions_ensure
from controlplane.analytics.rolling import blocks_due, roll
from controlplane.analytics.series import SeriesKey, series_ensure
from controlplane.fleet.models import Agent, JoinToken, OperationStep
from controlplane.rollouts.models import Rollout
from tenants.crypto import seal, secret_new
from tenants.models import Member, Namespace, Operation, Organisation, Pin, PolicyLevel, PolicyRevision, User
from tenants.services.namespaces import default_group
from tenants.services.pins import pin_place
from tests.bench import tenants
from tests.database.factories import about_agent

ENGINES: Final = 12
OF_ONE: Final = 3  # namespaces of each organisation that are asked
OF_BIG: Final = 100
ON_AGENTS: Final = 2  # each namespace
DAYS: Final = 2  # so that each day can be compared with the one before it
EVERY_MINUTES: Final = 120  # a namespace is asked on an agent
OTHERS: Final = 200  # organisations that have pins, and rules of their own
OVER, FIRING, OPEN, ENDED = 2_000, 150, 30, 300
MEMBERS, MEMBERS_OF_BIG, REVISIONS, PINS = 3, 60, 40, 40
MODEL: Final = "m"
POOL_MINUTES: Final = 60 * 24
# Each series in minutes of its own. Two of the eight times that bench A2 stores for each.
ROWS: Final = """
INSERT INTO analytics_minute (
    series_id, minute, requests, prompt_tokens, cached_tokens, generated_tokens, missed_cold, missed_expired,
    missed_evicted, missed_tail, expired_blocks, evicted_blocks, times
)
SELECT series.id, minute, 4 * asked, 4096 * asked, hit * asked, 512 * asked, (3000 - hit) * asked, 500 * asked,
    400 * asked, 196 * asked, 9 * cached, 5 * cached,
    CASE WHEN asked = 1 THEN ARRAY(
        SELECT (((1 + place) * 512 + (minute_number * 7 + series.id * 13 + place * 5) %% 40 + 100)::bigint << 32) | 1
        FROM generate_series((minute_number + series.id) %% 4, 7, 4) AS place
    ) ELSE ARRAY[]::bigint[] END
FROM (
    SELECT minute, extract(epoch FROM minute)::bigint / 60 AS minute_number
    FROM generate_series(%(first)s::timestamptz, %(last)s::timestamptz, interval '1 minute') AS minutes(minute)
) AS told
JOIN (
    SELECT id, (kind = %(customer)s)::int AS asked, (kind = %(cache)s)::int AS cached
    FROM analytics_series WHERE agent <> ''
) AS series ON series.id %% %(every)s = minute_number %% %(every)s
CROSS JOIN LATERAL (SELECT 1024 + (series.id * 31 + minute_number / 60) %% 1500 AS hit) AS chance
ORDER BY minute, series.id
"""


def fill() -> dict[str, Any]:
    """What `inside.py` prints: addresses' arguments by what pages call them, sizes, and how long it took."""
    base = tenants.fill()
    began, now = time.perf_counter(), timezone.now()
    organisations = list(Organisation.objects.exclude(state="deleted").order_by("pk"))
    big = next(one for one in organisations if one.slug == tenants.BIG)
    asked = _asked(big)
    agents = _agents(now)
    _people(organisations, big, now)
    _revisions(PolicyLevel.objects.filter(kind="fleet"), now)
    _revisions(PolicyLevel.objects.filter(namespace__organisation=big, namespace__slug="default"), now)
    rows = _usage(asked, agents, now)
    _held(asked, agents, now)
    defaults = Namespace.objects.select_related("organisation").filter(slug="default").order_by("pk")
    others = [*defaults.filter(organisation=big), *defaults.exclude(organisation=big)[:OTHERS]]
    named = {
        "alert": _alerts(others, now),
        "alert-rule": str(AlertRule.objects.get(built_in="", organisation=big).public_id),
        "rollout": _rollouts(organisations, agents, now),
        "operation": _operation(big, agents, now),
        "pin-end": _pins(big, others, now),
    }
    _join_tokens(now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    seconds = base["seconds"] + time.perf_counter() - began
    return {"named": named, "rows": rows, "seconds": seconds, "is_sound": base["is_sound"]}


def _asked(big: Organisation) -> list[Namespace]:
    """Whose prompts come: some of everybody's, more of the big one's."""
    found: dict[int, list[Namespace]] = {}
    for one in Namespace.objects.filter(deleted_at=None).select_related("organisation").order_by("pk"):
        found.setdefault(one.organisation_id, []).append(one)
    return [one for owner, theirs in found.items() for one in theirs[: OF_BIG if owner == big.pk else OF_ONE]]


def _agents(now: datetime) -> list[str]:
    """Engines and two gateways. Nobody speaks for them: they count as heard of until long after the bench."""
    heard, pool = now + timedelta(days=1), {"capacity_bytes": 1 << 36, "used_bytes": 3 << 34}
    names = [f"agent-{number}" for number in range(1, ENGINES + 1)]
    wanted = [(name, "engine") for name in names] + [(f"gateway-{number}", "gateway") for number in (1, 2)]
    beat = {"engine": {"state": "ready", "boot": "b"}, "load": {"running": 3, "waiting": 0}, "pool": pool}
    Agent.objects.bulk_create(
        Agent(
            id=name,
            kind=kind,
            group=default_group(),
            about=about_agent(),
            token_hash=secret_new("lma").hash,
            heartbeat=beat,
            last_seen_at=heard,
        )
        for name, kind in wanted
    )
    PoolMinute.objects.bulk_create(
        (
            PoolMinute(agent=name, minute=minute, boot="b", capacity_bytes=1 << 36, used_bytes=3 << 34)
            for name in names
            for minute in _minutes(now, POOL_MINUTES)
        ),
        batch_size=5_000,
    )
    return names


def _minutes(now: datetime, number: int) -> Iterator[datetime]:
    at = now.replace(second=0, microsecond=0)
    return (at - timedelta(minutes=ago) for ago in range(number))


def _people(organisations: Iterable[Organisation], big: Organisation, now: datetime) -> None:
    """Each an account of its own; of the big one's first admin the bench looks at customers' pages."""
    wanted = [
        (one, number) for one in organisations for number in range(MEMBERS_OF_BIG if one.pk == big.pk else MEMBERS)
    ]
    users = User.objects.bulk_create(
        User(email=f"p{number}@{one.slug}.example", password="!") for one, number in wanted
    )
    Member.objects.bulk_create(
        Member(organisation=one, email=user.email, user=user, role="viewer" if number else "admin", joined_at=now)
        for (one, number), user in zip(wanted, users, strict=True)
    )


def _revisions(levels: Iterable[PolicyLevel], now: datetime) -> None:
    """A history of another time to live each; the newest stands at the level."""
    for level in levels:
        numbers = range(level.revision + 1, level.revision + 1 + REVISIONS)
        said = {number: {**level.policy, "ttl_seconds": 300 + number} for number in numbers}
        PolicyRevision.objects.bulk_create(
            PolicyRevision(
                level=level,
                number=number,
                policy=policy,
                author="bench",
                author_is_operator=level.kind == "fleet",
                at=now - timedelta(hours=numbers[-1] - number),
            )
            for number, policy in said.items()
        )
        PolicyLevel.objects.filter(pk=level.pk).update(revision=numbers[-1], policy=said[numbers[-1]])


def _on(number: int, agents: list[str]) -> list[str]:
    return [agents[(number + place) % len(agents)] for place in range(ON_AGENTS)]


def _usage(asked: list[Namespace], agents: list[str], now: datetime) -> int:
    series_ensure(
        [
            SeriesKey(one.pk, agent, *what, one.organisation_id)
            for number, one in enumerate(asked)
            for agent in _on(number, agents)
            for what in ((MODEL, "bf16", CUSTOMER_KIND), ("", "", CACHE_KIND))
        ]
    )
    first = now.astimezone(UTC).replace(second=0, microsecond=0) - timedelta(days=DAYS, hours=1)
    partitions_ensure([(first + timedelta(days=ahead)).date() for ahead in range(DAYS + 2)])
    added = 0
    with connection.cursor() as cursor:
        for hour in range(24 * DAYS + 1):
            start = first + timedelta(hours=hour)
            told: dict[str, Any] = {"first": start, "last": start + timedelta(minutes=59), "every": EVERY_MINUTES}
            cursor.execute(ROWS, {**told, "customer": CUSTOMER_KIND, "cache": CACHE_KIND})
            added += cursor.rowcount
    Rolled.objects.all().delete()  # the stack's own worker may have rolled hours before these rows were in them
    while blocks_due(now):
        roll(now, seconds=60)
    return added


def _held(asked: list[Namespace], agents: list[str], now: datetime) -> None:
    curve = {"ttl_mode": "sliding", "limit_share": None, "hit_ratios": [0.2, 0.5, 0.7], "resident_bytes": [1, 2, 3]}
    curves = {"prompt_tokens": 50_000, "ttls": [60, 300, 600], "curves": [curve]}
    sample = {"prompts": 48, "tokens": 41_230, "findings": [], "partings": []}
    placed = [(one, agent) for number, one in enumerate(asked) for agent in _on(number, agents)]
    Residence.objects.bulk_create(
        (
            Residence(agent=agent, namespace_id=one.pk, boot="b", resident_bytes=5 << 20, evicted_blocks=9, at=now)
            for one, agent in placed
        ),
        batch_size=5_000,
    )
    ReuseCurve.objects.bulk_create(
        (ReuseCurve(agent=agent, namespace_id=one.pk, told=curves, at=now) for one, agent in placed), batch_size=5_000
    )
    Divergence.objects.bulk_create(
        Divergence(
            agent="gateway-1",
            namespace_id=one.pk,
            told={**sample, "hit_ratio_now": 0.5, "hit_ratio_then": 0.5},
            at=now,
        )
        for one in asked
    )


def _alerts(others: list[Namespace], now: datetime) -> str:
    """Of rules that are off, so that the stack's own worker lets them be. The newest of the first namespace's."""
    rules = AlertRule.objects.bulk_create(
        AlertRule(
            name=f"Cold in {one.organisation.slug}",
            scope="namespace",
            organisation=one.organisation,
            namespace=one,
            metric="hit_ratio",
            comparison="below",
            threshold=0.5,
            clears_at=0.55,
            for_seconds=900,
            clear_for_seconds=60,
            enabled=False,
            created_by="bench",
        )
        for one in others
    )
    made = Alert.objects.bulk_create(
        [_alert(rules[number % len(rules)], number, now) for number in range(OVER + FIRING)], batch_size=1_000
    )
    AlertEvent.objects.bulk_create(
        AlertEvent(alert=one, kind=kind, at=now) for one in made for kind in ("fired", "acknowledged")
    )
    return next(str(one.public_id) for one in reversed(made) if one.rule == rules[0])


def _alert(rule: AlertRule, number: int, now: datetime) -> Alert:
    fires, fired = number >= OVER, now - timedelta(minutes=OVER + FIRING - number)
    return Alert(
        rule=rule,
        rule_name=rule.name,
        by_operator=False,
        metric=rule.metric,
        subject=f"namespace {rule.namespace_id} {number}",
        place=f"{rule.organisation}/default",
        organisation_id=rule.organisation_id,
        namespace_id=rule.namespace_id,
        comparison=rule.comparison,
        threshold=rule.threshold,
        value=0.3,
        words="30.0 % of its prompt tokens came from the cache in the last 5 minutes",
        next_step="See by which reason its tokens were missed.",
        state="firing" if fires else "resolved",
        since=fired,
        fired_at=fired,
        resolved_at=None if fires else fired + timedelta(seconds=30),
    )


def _rollouts(organisations: list[Organisation], agents: list[str], now: datetime) -> str:
    """Those under way are paused or bake for long; one of them."""
    levels = list(
        PolicyLevel.objects.filter(organisation__in=organisations[: OPEN + 10]).select_related("organisation")
    )
    numbers = count()

    def made(level: PolicyLevel, state: str) -> Rollout:
        number = next(numbers)
        ended = None if state in Rollout.OPEN else now - timedelta(minutes=number)
        return Rollout(
            level=level,
            place=level.organisation.slug if level.organisation else "fleet",
            revision=level.revision,
            base_revision=level.revision,
            strategy="canary",
            steps=[10, 50, 100],
            bake_seconds=86_400,
            guards={},
            state=state,
            reached=agents[:2],
            created_by="bench",
            author_is_operator=True,
            created_at=now - timedelta(minutes=number),
            step_began_at=now,
            baking_since=now,
            finished_at=ended,
        )

    under_way = Rollout.objects.bulk_create(
        made(level, "running" if place % 2 else "paused") for place, level in enumerate(levels[:OPEN])
    )
    Rollout.objects.bulk_create(made(levels[place % len(levels)], "done") for place in range(ENDED))
    return str(under_way[0].pk)


def _operation(big: Organisation, agents: list[str], now: datetime) -> str:
    made = Operation.objects.create(
        kind="purge", organisation=big, scope=big.slug, state="done", created_by="bench", finished_at=now
    )
    receipt = {"blocks": 10, "bytes": 40_960}
    OperationStep.objects.bulk_create(
        OperationStep(operation=made, agent_id=name, deed="state", state="done", receipt=receipt, done_at=now)
        for name in agents
    )
    return str(made.pk)


def _pins(big: Organisation, others: list[Namespace], now: datetime) -> str:
    where = [Namespace.objects.get(organisation=big, slug="default")] * PINS + others
    made = [
        Pin(
            namespace=one,
            name=f"handbook {number}",
            model=MODEL,
            content_kind="prompt",
            content_bytes=2_000,
            created_by="bench",
            expires_at=now + timedelta(days=30),
        )
        for number, one in enumerate(where)
    ]
    for one in made:
        one.sealed_content = seal(b'"' + b"x" * 1_998 + b'"', place=pin_place(one))
    Pin.objects.bulk_create(made)
    return str(made[0].pk)


def _join_tokens(now: datetime) -> None:
    secrets = [secret_new("lmj") for _ in range(30)]
    JoinToken.objects.bulk_create(
        JoinToken(
            name=f"rack {number}",
            prefix=one.prefix,
            hash=one.hash,
            group=default_group(),
            created_by="bench",
            expires_at=now + timedelta(days=1),
        )
        for number, one in enumerate(secrets)
    )
