"""The faults through which the numbers must stay exact, on real processes. Each test shows that its fault happened.

After each no token is lost and none doubled: what clients were told, or what engines wrote before they told it, is
recounted by recount.py and compared with the rows of minutes and with what the API says.
"""

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest

from engine_agent.contracts.usage import CODES, row_document
from engine_agent.sidecar.spool import Frozen, Spool
from tests.fleet.fleets import Fleet, Part, fleet_running, inside
from tests.support.waiting import wait_until
from tests.usage.agents import TellingAgent, Whose, minute_of, row_of, rows_by_chance, shuffled
from tests.usage.chats import LEFT, Chat, Customer, Door, chats
from tests.usage.fleets import (
    MODEL,
    Postgres,
    Traffic,
    customer,
    engine_agent,
    engine_of,
    gateway,
    is_ready,
    naming,
    organisation_make,
    postgres,
    refused_rows,
    stored,
    stored_minutes,
    telling,
    told,
    traffic,
    whose,
)
from tests.usage.recount import KeptJournals, Recount, Sum, Sums, by_namespace, journals_kept, total, truth_of

HOUR, DAY = 3_600, 86_400
_organisations = (f"org-{number}" for number in count(1))
_agents = (f"teller-{number}" for number in count(1))


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Durable: PostgreSQL is killed here."""
    with fleet_running(is_durable=True) as running:
        yield running


@pytest.fixture(scope="module")
def database(fleet: Fleet) -> Iterator[Postgres]:
    with postgres(fleet) as found:
        yield found


@pytest.fixture
def organisation(fleet: Fleet) -> str:
    """One that nobody has told anything of."""
    slug = next(_organisations)
    organisation_make(fleet, slug, "batch")
    return slug


@pytest.fixture
def tell(fleet: Fleet) -> Iterator[Callable[[], TellingAgent]]:
    """Makes agents that tell."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(telling(fleet, next(_agents))))


@pytest.fixture
def agent(tell: Callable[[], TellingAgent]) -> TellingAgent:
    return tell()


def tenants_of(fleet: Fleet, organisation: str) -> list[Whose]:
    return [whose(fleet, organisation, namespace) for namespace in ("default", "batch")]


def told_by_chance(agent: TellingAgent, tenants: list[Whose], *, reports: int, rows: int = 40, seed: int = 8) -> None:
    """Reports of the last hour, their rows overlapping."""
    chance, now = random.Random(f"{seed} {agent.name}"), minute_of(time.time())
    minutes = range(now - 50 * 60, now + 1, 60)
    for _ in range(reports):
        agent.usage(rows_by_chance(chance, tenants, rows, minutes=minutes))


def stored_of(fleet: Fleet, organisation: str) -> Sum:
    return total(stored(fleet), organisation)


def exactly(fleet: Fleet, organisation: str, truth: Sum) -> None:
    """To the token, in the rows and from the API; and everybody else who counts agrees."""
    assert stored_of(fleet, organisation) == truth
    assert told(fleet, organisation) == truth
    assert json.loads(inside(fleet, "tests.usage.inside:differences")) == []


# Reports on their way


def test_the_same_report_five_times_is_counted_once(fleet: Fleet, organisation: str, agent: TellingAgent) -> None:
    told_by_chance(agent, tenants_of(fleet, organisation), reports=6)
    answers = [agent.send(agent.batch(1)) for _ in range(5)]
    assert [status for status, _ in answers] == [200] * 5
    assert {told["acknowledged"] for _, told in answers} == {6}
    exactly(fleet, organisation, agent.told())


def test_reports_split_anew_and_overtaken_by_each_other_are_counted_once(
    fleet: Fleet, organisation: str, agent: TellingAgent
) -> None:
    """Whatever the network keeps back: every batch begins behind what was acknowledged when it was made."""
    chance = random.Random(5)
    for done in range(0, 24, 6):
        told_by_chance(agent, tenants_of(fleet, organisation), reports=6, seed=done)
        some = [agent.batch(first, last) for first, last in ((1, done + 2), (done + 1, done + 6), (done + 1, done + 3))]
        some += [agent.batch(chance.randrange(1, done + 2), done + chance.randrange(1, 7)) for _ in range(4)]
        deeds = shuffled(chance, [partial(agent.sends, batch) for batch in some])
        assert [deed() for deed in deeds] == [True] * len(deeds)
    assert agent.acknowledged == len(agent.reports) < agent.tries * 6
    exactly(fleet, organisation, agent.told())


def test_reports_whose_answer_nobody_heard_are_counted_once(
    fleet: Fleet, organisation: str, agent: TellingAgent
) -> None:
    """The connection ends when the rows are stored, and before the answer: the agent has to tell it all again."""
    told_by_chance(agent, tenants_of(fleet, organisation), reports=4)
    with agent.unheard(agent.batch(1)):
        wait_until(lambda: stored_of(fleet, organisation) == agent.told(), "what nobody was told that it is stored")
    assert agent.acknowledged == 0
    agent.deliver()
    exactly(fleet, organisation, agent.told())


def test_the_batches_of_one_agent_at_once_are_counted_once(
    fleet: Fleet, organisation: str, agent: TellingAgent
) -> None:
    told_by_chance(agent, tenants_of(fleet, organisation), reports=10)
    copies = [agent.twin() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool, ExitStack() as opened:
        for one in copies:
            opened.enter_context(closing(one))
        assert all(pool.map(lambda one: one.sends(agent.batch(1)), copies))
    exactly(fleet, organisation, agent.told())


def test_a_boot_id_used_again_is_counted_again(fleet: Fleet, organisation: str, agent: TellingAgent) -> None:
    """An engine restored from a copy has a boot of before and counts its records anew; its agent has a new spool."""
    tenants = tenants_of(fleet, organisation)
    told_by_chance(agent, tenants, reports=3)
    agent.deliver()
    again = agent.twin(spool="spool-again")
    again.records = 0
    told_by_chance(again, tenants, reports=2, seed=9)
    with closing(again):
        again.deliver()
    assert again.boot == agent.boot
    assert again.reports[0].told["upto"] < agent.reports[-1].told["upto"], "its numbers begin anew"
    exactly(fleet, organisation, agent.told() + again.told())


# The database


def test_postgresql_killed_in_the_middle_of_ingest_loses_and_doubles_nothing(
    fleet: Fleet, database: Postgres, organisation: str, tell: Callable[[], TellingAgent]
) -> None:
    tenants = tenants_of(fleet, organisation)
    tellers = [tell() for _ in range(3)]
    for one in tellers:
        told_by_chance(one, tenants, reports=30)
    truth = sum((one.told() for one in tellers), Sum())
    with ThreadPoolExecutor(3) as pool:
        with minutes_locked(fleet):
            delivering = [pool.submit(one.deliver, most=4) for one in tellers]
            wait_until(lambda: ingest_waits(fleet), "an ingest that has begun")
            database.kill()
        assert not any(one.done() for one in delivering), "the fault: it died with their rows in its hands"
        database.start()
        for _ in range(3):
            database.kill()
            database.start()
        for done in delivering:
            done.result()
    assert sum(one.tries for one in tellers) > 3 * 30 / 4, "somebody had to say it again"
    exactly(fleet, organisation, truth)


@contextmanager
def minutes_locked(fleet: Fleet) -> Iterator[None]:
    """By somebody who reads all of them, until the end, or that of PostgreSQL."""
    with suppress(psycopg.OperationalError), psycopg.connect(fleet.environment["LUMINET_DATABASE_URL"]) as connection:
        connection.execute("LOCK TABLE analytics_minute IN EXCLUSIVE MODE")
        yield
        connection.rollback()


def ingest_waits(fleet: Fleet) -> bool:
    return bool(
        fleet.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'")
    )


def test_rows_for_a_day_without_a_partition_find_one(fleet: Fleet, organisation: str, agent: TellingAgent) -> None:
    """Nobody has made it, or somebody has dropped it: the day before yesterday's, and today's."""
    (tenant, _) = tenants_of(fleet, organisation)
    now = time.time()
    partitions_drop_empty(fleet)
    days = [now - 47.5 * HOUR, now - 20 * HOUR, now]
    missing = [day for day in days if not partition_of(fleet, day)]
    assert missing, "the fault: a day that has no partition"
    for day in days:
        agent.usage([row_of(tenant, at=day)])
    agent.deliver()
    assert agent.refused_rows == []
    assert stored_of(fleet, organisation) == agent.told() == Sum(3, 300, 120)


PARTITIONS = (
    "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = 'analytics_minute'::regclass"
)


def partitions_drop_empty(fleet: Fleet) -> None:
    for name, _ in fleet.rows(PARTITIONS):
        if fleet.value(f"SELECT count(*) FROM {name}") == 0:
            fleet.rows(f"DROP TABLE {name}")


def partition_of(fleet: Fleet, at: float) -> str | None:
    """By what PostgreSQL says of its bounds."""
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    return next((name for name, bounds in fleet.rows(PARTITIONS) if f"FROM ('{day}" in bounds), None)


# Bad input at the door


def test_bad_rows_are_refused_by_name_the_rest_is_kept_and_the_agent_learns_which(
    fleet: Fleet, organisation: str, agent: TellingAgent
) -> None:
    (tenant, _) = tenants_of(fleet, organisation)
    now, good = time.time(), row_of(tenant)
    bad = bad_rows(tenant, now)
    report = agent.usage([good])
    for _, row in bad:
        report.told["rows"].extend([row, dict(report.told["rows"][0])])
    agent.deliver()
    places = {(1, 2 * place + 1) for place in range(len(bad))}
    assert {(one["report"], one["row"]) for one in agent.refused_rows} == places
    by_row = {one["row"]: one for one in agent.refused_rows}
    for place, (field, row) in enumerate(bad):
        said = by_row[2 * place + 1]
        assert field in said["field"], (said, row)
        assert said["problem"], said
    assert {(report, row) for report, row, _, _ in refused_rows(fleet, agent.name)} == places
    exactly(fleet, organisation, Sum(len(bad) + 1, 100 * (len(bad) + 1), 40 * (len(bad) + 1)))


def bad_rows(tenant: Whose, now: float) -> list[tuple[str, dict[str, Any]]]:
    """What is wrong with each, and the row."""

    def row(**changes: Any) -> dict[str, Any]:
        return row_document(row_of(tenant, at=now)) | changes

    def counts(**changes: Any) -> dict[str, Any]:
        return row(counts={"requests": 1, "prompt_tokens": 100, "cached_tokens": 40, **changes})

    return [
        ("counts", counts(prompt_tokens=-1)),
        ("counts", counts(prompt_tokens=1 << 62)),
        ("counts", counts(prompt_tokens=10**30)),
        ("counts", counts(prompt_tokens=1.5)),
        ("counts", counts(prompt_tokens="100")),
        ("counts", counts(requests=True)),
        ("counts", counts(cached_tokens=101)),
        ("counts", counts(surprise=1)),
        ("namespace", row(namespace="999999999")),
        ("namespace", row(namespace="no-number")),
        ("namespace", row(namespace=None)),
        ("minute", row(minute=minute_of(now - 48 * HOUR) - 120)),
        ("minute", row(minute=minute_of(now) + 49 * HOUR)),
        ("minute", row(minute=minute_of(now) + 1)),
        ("minute", row(minute=1e300)),
        ("kind", row(kind="gift")),
        ("missed", row(missed={"cold": -3})),
        ("missed", row(missed={"bad luck": 3})),
        ("times", row(times=[[CODES, 1]])),
        ("times", row(times=[[-1, 1]])),
        ("times", row(times=[[1, -1]])),
        ("times", row(times=[[1, 1, 1]])),
        ("times", row(times={"1": 1})),
        ("times", row(times=[1, 2, 3])),
    ]


@pytest.mark.parametrize("ahead", [HOUR, DAY])
def test_what_was_counted_before_the_control_planes_clock_was_set_back_is_counted_in_the_minute_it_comes(
    fleet: Fleet, organisation: str, agent: TellingAgent, ahead: int
) -> None:
    """Agents date by the control plane's clock: an hour ahead then, and right again as they tell."""
    (tenant, _) = tenants_of(fleet, organisation)
    agent.usage([row_of(tenant, at=time.time() + ahead), row_of(tenant)])
    agent.deliver()
    assert agent.refused_rows == []
    exactly(fleet, organisation, Sum(2, 200, 80))


def test_a_row_of_another_organisations_namespace_is_refused(
    fleet: Fleet, organisation: str, agent: TellingAgent
) -> None:
    other = next(_organisations)
    organisation_make(fleet, other)
    (tenant, _), theirs = tenants_of(fleet, organisation), whose(fleet, other)
    agent.usage([row_of(Whose(tenant.organisation, theirs.namespace)), row_of(tenant)])
    agent.deliver()
    assert [(one["row"]) for one in agent.refused_rows] == [0]
    exactly(fleet, organisation, Sum(1, 100, 40))
    exactly(fleet, other, Sum())


def test_what_is_told_again_is_not_refused_again(fleet: Fleet, organisation: str, agent: TellingAgent) -> None:
    (tenant, _) = tenants_of(fleet, organisation)
    agent.usage([row_of(tenant, prompt_tokens=-1), row_of(tenant)])
    for _ in range(3):
        agent.sends(agent.batch(1))
    assert len(refused_rows(fleet, agent.name)) == 1
    exactly(fleet, organisation, Sum(1, 100, 40))


# Sidecars and the control plane


def test_an_hour_of_traffic_without_a_control_plane_is_told_when_it_is_back(fleet: Fleet, organisation: str) -> None:
    """The hour is compressed: as many requests as two agents serve in one at a request a second."""
    hours_requests = 2 * HOUR
    with traffic(fleet, "hour", rate=400) as agents:
        controls = [fleet.parts[name] for name in ("web", "worker", "beat")]
        for part in controls:
            part.kill()
        before = agents.requests()
        wait_until(lambda: agents.requests() >= before + hours_requests, "an hour's requests")
        untold = agents.requests() - agents.stored_requests()
        assert agents.part.is_running
        assert untold >= hours_requests, "the fault: nothing of it could be told"
        for part in controls:
            part.start()
        agents.agree()


def test_a_sidecar_killed_between_spool_and_send_tells_it_once_when_it_is_back(fleet: Fleet, organisation: str) -> None:
    web = fleet.parts["web"]
    with traffic(fleet, "spooled", agents=1) as agents:
        for _ in range(3):
            web.pause()
            try:
                wait_until(lambda: usage_spooled(agents), "usage that is spooled and not sent")
                agents.part.kill()
            finally:
                web.resume()
            assert usage_spooled(agents), "the fault: it is on disk, and nobody has been told"
            agents.start(50)
        agents.agree()


def usage_spooled(agents: Traffic) -> bool:
    """Whether a spool holds a report of usage that nobody has acknowledged."""
    spools = [Spool(Frozen(path.read_bytes())) for path in agents.home.glob("*/spool")]
    return any(one.waiting("usage") for one in spools)


def test_a_sidecar_killed_again_and_again_wherever_it_is_loses_and_doubles_nothing(
    fleet: Fleet, organisation: str
) -> None:
    """Between journal and spool, spool and cut, cut and send: wherever the moment finds it."""
    chance = random.Random(1)
    with traffic(fleet, "mortal", rate=200) as agents:
        for _ in range(6):
            reached = agents.requests() + chance.randrange(50, 500)
            wait_until(partial(has_reached, agents, reached), "more requests")
            agents.restart(200)
        agents.agree()
        assert agents.boots() >= 6, "the fault: it died as often"


def has_reached(agents: Traffic, requests: int) -> bool:
    return agents.requests() >= requests


def test_an_engine_that_begins_its_journal_anew_under_the_boot_of_before_is_counted(
    fleet: Fleet, organisation: str
) -> None:
    """Restored without its journal, say: the same boot and numbers from 1 again, up to more than before, or fewer."""
    with traffic(fleet, "again", agents=1, boot="boot-again") as agents:
        for rate, more in ((50, 200), (50, 400), (20, 60)):
            wait_until(partial(has_reached, agents, agents.requests() + more), "requests")
            agents.quiet()
            agents.part.kill()
            for folder in agents.home.glob("*/journal"):
                shutil.rmtree(folder)
            agents.start(rate)
        wait_until(lambda: agents.journals_of("boot-again") == 4, "the fault: four journals by one name")
        agents.quiet()


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_wall_clock_that_jumps_an_hour_moves_no_request_to_another_minute(
    fleet: Fleet, organisation: str, jump: int
) -> None:
    began = time.time()
    name = f"jump{'ahead' if jump > 0 else 'back'}"
    with traffic(fleet, name, agents=1) as agents:
        agents.clock_set(jump)
        wait_until(lambda: condition(fleet, f"{name}-0001", "clock_skew"), "the fault: its clock is seen to be off")
        reached = agents.requests() + 200
        wait_until(partial(has_reached, agents, reached), "requests at that time")
        agents.clock_set(0)
        agents.agree()
        assert_minutes_between(agents, began, time.time())


def test_a_restart_with_a_wrong_clock_and_without_a_control_plane_dates_requests_right(
    fleet: Fleet, organisation: str
) -> None:
    """What it has learnt of the control plane's clock is in its home."""
    began, web = time.time(), fleet.parts["web"]
    with traffic(fleet, "astray", agents=1) as agents:
        agents.clock_set(HOUR)
        wait_until(lambda: condition(fleet, "astray-0001", "clock_skew"), "the fault: its clock is seen to be off")
        web.kill()
        agents.restart(50)
        reached = agents.requests() + 200
        wait_until(partial(has_reached, agents, reached), "requests that nobody hears of")
        web.start()
        agents.agree()
        assert_minutes_between(agents, began, time.time())


def condition(fleet: Fleet, agent: str, kind: str) -> object:
    return fleet.ask("GET", f"/fleet/agents/{agent}")["conditions"].get(kind)


def assert_minutes_between(agents: Traffic, began: float, ended: float) -> None:
    minutes = stored_minutes(agents.fleet, f"{agents.prefix}-%")
    astray = [minute for minute in minutes if not minute_of(began - 2) <= minute <= minute_of(ended + 2)]
    assert not astray, f"requests in {astray} between {began} and {ended}"


# Retention and roll-ups


def test_retention_and_rolling_during_ingest_lose_and_double_nothing(
    fleet: Fleet, organisation: str, tell: Callable[[], TellingAgent]
) -> None:
    """Old days go away while agents tell of the last two days, and pieces are made of what is still coming."""
    tenants = tenants_of(fleet, organisation)
    tellers = [tell() for _ in range(3)]
    now = minute_of(time.time())
    old, day = old_day_make(fleet, tenants[0], now - 5 * DAY), now - 5 * DAY
    wait_until(lambda: inside(fleet, "tests.usage.inside:rolled_day", str(day)) == "true", "the old day to be rolled")
    assert partition_of(fleet, day)
    is_dropped = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        telling_on = [pool.submit(tell_until, is_dropped, one, tenants, now) for one in tellers]
        try:
            wait_until(
                lambda: inside(fleet, "tests.usage.inside:roll_and_retain") and not partition_of(fleet, day), "a drop"
            )
        finally:
            is_dropped.set()
        for done in telling_on:
            done.result()
    truth = sum((one.told() for one in tellers), Sum())
    inside(fleet, "tests.usage.inside:roll_and_retain")
    assert stored_of(fleet, organisation) == truth
    assert told(fleet, organisation, "30d") == truth + old
    found = fleet.ask("GET", f"/orgs/{organisation}/stats?window=24h")
    since = int(datetime.fromisoformat(found["from"]).timestamp())
    assert Sum(found["requests"], found["prompt_tokens"], found["cached_tokens"]) == within(tellers, since=since)


def tell_until(over: threading.Event, agent: TellingAgent, tenants: list[Whose], now: int) -> None:
    """Rows of two days, and once more after that."""
    chance, minutes = random.Random(agent.name), range(now - 47 * HOUR, now + 1, 60)
    is_last = False
    while not is_last:
        is_last = over.is_set()
        for _ in range(6):
            agent.usage(rows_by_chance(chance, tenants, 40, minutes=minutes))
        agent.deliver(most=2)


def within(tellers: list[TellingAgent], *, since: int) -> Sum:
    rows = [row for one in tellers for report in one.reports for row in report.told["rows"] if row["minute"] >= since]
    return sum((sum_of_counts(row["counts"]) for row in rows), Sum())


def sum_of_counts(counts: Mapping[str, int]) -> Sum:
    return Sum(counts["requests"], counts["prompt_tokens"], counts["cached_tokens"])


def old_day_make(fleet: Fleet, tenant: Whose, at: int) -> Sum:
    """Rows that came in time, five days ago: nobody may tell them now."""
    arguments = (tenant.organisation, tenant.namespace, at, 25)
    inside(fleet, "tests.usage.inside:old_rows_store", *map(json.dumps, arguments))
    return Sum(25, 2_500, 1_000)


# Real engines and a gateway


@pytest.fixture(scope="module")
def customers(fleet: Fleet) -> list[Customer]:
    organisation_make(fleet, "acme", "batch")
    organisation_make(fleet, "globex")
    return [customer(fleet, "acme"), customer(fleet, "acme", "batch"), customer(fleet, "globex")]


@pytest.fixture(scope="module")
def kept(fleet: Fleet) -> Iterator[KeptJournals]:
    with journals_kept(
        fleet.config.home / "kept-engines", fleet.config.home / "engine-1", fleet.config.home / "engine-2"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def engines(fleet: Fleet, customers: list[Customer], kept: KeptJournals) -> Iterator[list[Part]]:
    with engine_agent(fleet, "engine-1") as (one, _), engine_agent(fleet, "engine-2") as (other, _):
        yield [one, other]


@pytest.fixture(scope="module")
def recount() -> Recount:
    """Of all that is asked of the real engines here: their journals are one for all tests."""
    return Recount()


@pytest.fixture(scope="module")
def door(fleet: Fleet, engines: list[Part], customers: list[Customer], recount: Recount) -> Iterator[Door]:
    with gateway(fleet) as (_, url):
        found = Door(url, recount)
        wait_until(lambda: found.serves(MODEL, customers[0]), "a model at the gateway")
        yield found


def agrees_with_headers(fleet: Fleet, recount: Recount, kept: KeptJournals) -> None:
    """What clients saw, with what engines wrote for those in doubt; by namespace, and by agent where all were seen."""

    def truth() -> Sums:
        return truth_of(recount, kept.opened()).sums

    def rows() -> Sums:
        return {place: one for place, one in stored(fleet).items() if place.agent.startswith("engine-")}

    with naming(lambda: (by_namespace(truth()), by_namespace(rows()))):
        wait_until(lambda: by_namespace(rows()) == by_namespace(truth()), "rows as headers said")
    for organisation in ("acme", "globex"):
        assert told(fleet, organisation) == total(truth(), organisation)
    assert told(fleet, "acme", namespace="batch") == by_namespace(truth()).get(("acme", "batch"), Sum())


def test_whatever_clients_do_the_rolling_24_hours_are_what_headers_said(
    fleet: Fleet, door: Door, customers: list[Customer], recount: Recount, kept: KeptJournals
) -> None:
    for seed in range(1, 9):
        door.burst(list(chats(customers, 60, seed=seed, max_tokens=40)), at_once=16)
        if len({one.place.agent for one in recount.answers}) == 2:
            break
    places = {one.place for one in recount.answers}
    assert len({place.agent for place in places}) == 2
    assert len({(place.organisation, place.namespace) for place in places}) == 3
    assert {LEFT} <= set(recount.doubts.values()), "some left before they saw headers"
    agrees_with_headers(fleet, recount, kept)
    seen = [told.place.agent for told in recount.answers]
    assert {place.agent for place in stored(fleet) if place.agent.startswith("engine-")} >= set(seen)


def test_an_engine_killed_after_its_headers_left_is_counted_and_cut_off(
    fleet: Fleet, door: Door, engines: list[Part], customers: list[Customer], recount: Recount, kept: KeptJournals
) -> None:
    question = [{"role": "user", "content": "Tell me of everything, at length."}]
    chat = Chat(customers[0], "stream", question, max_tokens=900)
    cut_off = requests_cut_off(fleet)
    with door.open(chat) as agent:
        engine = engine_of(engines[["engine-1", "engine-2"].index(agent)])
        engine.kill()
        engine.wait(20)
    assert chat.request in {told.request for told in recount.answers}, "its headers had left"
    wait_until(lambda: requests_cut_off(fleet) == cut_off + 1, "the request that was cut off")
    wait_until(lambda: is_ready(fleet, agent), "another engine")
    door.burst(list(chats(customers, 20, seed=2)))
    agrees_with_headers(fleet, recount, kept)


def requests_cut_off(fleet: Fleet) -> int:
    return int(
        fleet.value(
            "SELECT coalesce(sum(m.cut_off), 0) FROM analytics_minute m JOIN analytics_series s ON s.id = m.series_id "
            "WHERE s.agent LIKE 'engine-%%'"
        )
    )


def test_engines_and_sidecars_killed_under_load_lose_and_double_nothing(
    fleet: Fleet, door: Door, engines: list[Part], customers: list[Customer], recount: Recount, kept: KeptJournals
) -> None:
    """The engine first, then the sidecar, which is started again by hand as a supervisor would."""
    before, asked = engine_of(engines[0]), len(recount.answers) + len(recount.doubts) + recount.refusals.total()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(door.burst, list(chats(customers, 80, seed=3)))
        wait_until(lambda: has_asked(recount, asked + 10), "load")
        before.kill()
        wait_until(lambda: has_asked(recount, asked + 30), "load")
        engines[1].kill()
        engines[1].start()
        assert not asking.done(), "both died under load"
        asking.result()
    for name in ("engine-1", "engine-2"):
        wait_until(partial(is_ready, fleet, name), name)
    assert engine_of(engines[0]).pid != before.pid
    agrees_with_headers(fleet, recount, kept)


def has_asked(recount: Recount, requests: int) -> bool:
    return len(recount.answers) + len(recount.doubts) + recount.refusals.total() >= requests
