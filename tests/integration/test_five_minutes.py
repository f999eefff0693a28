"""The five minutes: for operators of a demonstration alone, one of a kind at a time, as measured, always undone."""

import html
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.dashboard.experiments import asking
from controlplane.dashboard.experiments.asking import CutShort, NotAnswered
from controlplane.demo.experiments import five_minutes
from controlplane.demo.experiments.kinds import fault, flood, hit, isolation, policy, prompt_fix
from controlplane.demo.experiments.running import experiment_begin, experiment_told, left_put, left_take
from controlplane.demo.experiments.trials import NotPossible, Step, Told
from controlplane.fleet.models import Agent
from tenants.access import actor_for_operator
from tenants.actor import Actor
from tenants.levels import Place, level_of
from tenants.models import ApiKey, Namespace, Organisation, User
from tests.database.factories import make_agent, make_operator, publish
from tests.gateway.stand_in_gateway import StandIn, stand_in_gateway
from tests.support.waiting import wait_until
from tests.web.api import make_organisation
from tests.web.demonstration import demonstration

pytestmark = pytest.mark.django_db
PAGE = "/five-minutes"
KINDS = ["hit", "isolation", "policy", "prompt", "flood", "fault"]


@pytest.fixture
def demo() -> Iterator[None]:
    with demonstration():
        yield


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in_gateway() as found:
        made = make_agent("gateway-1", kind="gateway", address=found.address)
        Agent.objects.filter(pk=made.pk).update(last_seen_at=timezone.now())
        yield found


@pytest.fixture
def globex(db: None) -> Organisation:
    make_organisation("initech")
    return make_organisation("globex", "experiments")


@pytest.fixture
def actor(db: None) -> Actor:
    return actor_for_operator(User.objects.filter(is_operator=True).first() or make_operator())


def words(response: HttpResponse) -> str:
    page = response.content.decode()
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


def told(steps: Iterator[Step | None]) -> list[Step]:
    return [one for one in steps if one is not None]


def living_keys() -> int:
    return ApiKey.objects.filter(revoked_at=None).count()


def ended(kind: str) -> Told:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        told = experiment_told(kind)
        if told is not None and told.is_over:
            return told
        time.sleep(0.02)
    raise AssertionError(f"{kind} did not end")


def experiments(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.setattr(five_minutes, "EXPERIMENTS", {"hit": (hit.ABOUT, run)})


# The page


def test_outside_a_demonstration_it_is_not_there(operator_client: Client) -> None:
    assert operator_client.get(PAGE).status_code == 404
    assert operator_client.get(f"{PAGE}/now/hit").status_code == 404
    assert operator_client.post(PAGE, {"kind": "hit"}).status_code == 404
    assert experiment_told("hit") is None


def test_customers_never_see_it(customer_client: Client, demo: None) -> None:
    assert customer_client.get(PAGE).status_code == 404
    assert customer_client.post(PAGE, {"kind": "fault"}).status_code == 404
    assert experiment_told("fault") is None


def test_it_has_a_button_for_each_experiment_and_claims_nothing_yet(operator_client: Client, demo: None) -> None:
    page = operator_client.get(PAGE)
    assert re.findall(r'name="kind" value="(\w+)"', page.content.decode()) == KINDS
    assert words(page).count("not run yet") == len(KINDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["", "nothing", "<script>", "k" * 5_000])
def test_what_is_no_experiment_is_not_there(operator_client: Client, demo: None, kind: str) -> None:
    assert operator_client.post(PAGE, {"kind": kind}).status_code == 404


def test_one_of_a_kind_runs_at_a_time_and_its_panel_asks_until_it_is_over(
    operator_client: Client, demo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(actor: Actor) -> Iterator[Step]:
        yield Step("It <b>began</b>.")
        assert go_on.wait(10)
        yield Step("It went on.", verdict="It is shown", tone="ok")

    experiments(monkeypatch, slow)
    assert operator_client.post(PAGE, {"kind": "hit"})["Location"] == f"{PAGE}#hit"
    first = experiment_told("hit")
    assert first is not None
    again = operator_client.post(PAGE, {"kind": "hit"}, follow=True)
    assert "is under way already" in words(again)  # type: ignore[arg-type]
    second = experiment_told("hit")
    assert second is not None
    assert second.id == first.id
    end = time.monotonic() + 5
    while not second.steps and time.monotonic() < end:
        second = experiment_told("hit") or second
    panel = operator_client.get(f"{PAGE}/now/hit")
    assert "It &lt;b&gt;began&lt;/b&gt;." in panel.content.decode()
    (asks,) = re.findall(r'hx-get="([^"]+)"', panel.content.decode())
    assert operator_client.get(html.unescape(asks)).status_code == 204
    go_on.set()
    ended("hit")
    last = operator_client.get(html.unescape(asks))
    assert last.status_code == 200
    assert "hx-get" not in last.content.decode()
    assert "It is shown" in words(last)  # type: ignore[arg-type]
    assert "1 of 1 experiments have shown it" in words(last)  # type: ignore[arg-type]


def test_an_experiment_that_fails_undoes_says_why_and_may_be_run_again(actor: Actor) -> None:
    undone = []

    def failing(actor: Actor) -> Iterator[Step]:
        try:
            yield Step("It began.")
            raise NotAnswered("The gateway is away.")
        finally:
            undone.append(True)

    assert experiment_begin("hit", failing, actor)
    assert ended("hit").problem == "The gateway is away."
    wait_until(lambda: experiment_begin("hit", failing, actor))
    ended("hit")
    assert undone[0]


def test_what_nobody_foresaw_is_told_without_its_details(actor: Actor) -> None:
    def broken(actor: Actor) -> Iterator[Step]:
        yield Step("It began.")
        raise RuntimeError("secret-detail")

    experiment_begin("hit", broken, actor)
    problem = ended("hit").problem
    assert problem.startswith("Something broke on our side")
    assert "secret-detail" not in problem


# The experiments


def test_a_hit_is_shown_with_what_each_counts(actor: Actor, globex: Organisation, gateway: StandIn) -> None:
    hit_seconds = hit.STORED_SECONDS
    hit.STORED_SECONDS = 0.1  # type: ignore[misc]
    try:
        steps = list(hit.hit(actor))
    finally:
        hit.STORED_SECONDS = hit_seconds  # type: ignore[misc]
    assert [answer.hit for one in steps for _, answer in one.answers] == ["0.0", "99.0"]
    facts = {label: value for one in steps for label, value, _ in one.facts}
    assert facts["Header"] == facts["Usage body"] == "1,584 of 3,200"
    assert facts["Database"] == "0 of 0"  # nothing reported here, and nothing is claimed
    assert any("Not all of them say the same" in one.facts_title for one in steps)
    assert living_keys() == 0


def test_isolation_is_shown_by_another_organisations_miss(actor: Actor, globex: Organisation, gateway: StandIn) -> None:
    steps = list(isolation.isolation(actor))
    assert [answer.hit for one in steps for _, answer in one.answers] == ["0.0", "99.0", "0.0", "99.0"]
    assert [one.tone for one in steps if one.verdict] == ["ok"]
    prompts = {str(body["messages"]) for _, body, _ in gateway.asked}
    assert len(prompts) == 1
    assert living_keys() == 0


def test_a_leak_would_be_called_one(actor: Actor, globex: Organisation, gateway: StandIn) -> None:
    gateway.leaks = True
    steps = list(isolation.isolation(actor))
    assert [one.tone for one in steps if one.verdict] == ["bad"]


@pytest.fixture
def experiments_ns(globex: Organisation, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(policy, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(policy, "ACKNOWLEDGED_SECONDS", 0.1)
    make_agent("agent-1")
    place = Place(globex, Namespace.objects.get(organisation=globex, slug="experiments"))
    publish(place, ttl_seconds=300, kv_dtype="bf16")
    return place


def test_a_policy_is_felt_and_taken_back(actor: Actor, experiments_ns: Place, gateway: StandIn) -> None:
    gateway.reasons = ["cold", "", "expired"]
    steps = told(policy.policy(actor))
    assert [answer.header("miss-reason") for one in steps for _, answer in one.answers] == ["cold", "none", "expired"]
    level = level_of(experiments_ns)
    assert (level.revision, level.policy) == (3, {"ttl_seconds": 300, "kv_dtype": "bf16"})
    assert left_take("policy") is None
    assert [one.tone for one in steps if one.verdict] == ["warn"]  # no agent has acknowledged anything here
    assert living_keys() == 0


def test_a_policy_is_taken_back_when_it_fails_halfway(actor: Actor, experiments_ns: Place, gateway: StandIn) -> None:
    gateway.breaks_at = 2
    with pytest.raises(NotAnswered):
        list(policy.policy(actor))
    assert level_of(experiments_ns).policy["ttl_seconds"] == 300
    assert left_take("policy") is None
    assert living_keys() == 0


def test_what_a_dead_process_left_in_force_is_taken_back_first(
    actor: Actor, experiments_ns: Place, gateway: StandIn
) -> None:
    publish(experiments_ns, ttl_seconds=5, kv_dtype="bf16")
    left_put("policy", {"back_to": 1, "revision": 2})
    first = next(policy.policy(actor))
    assert first is not None
    assert "cut off" in first.words
    assert level_of(experiments_ns).policy["ttl_seconds"] == 300


def test_what_somebody_has_published_since_is_left_alone(actor: Actor, experiments_ns: Place) -> None:
    publish(experiments_ns, ttl_seconds=5)
    publish(experiments_ns, ttl_seconds=900)
    left_put("policy", {"back_to": 1, "revision": 2})
    assert policy.undo(actor) is False
    assert level_of(experiments_ns).policy["ttl_seconds"] == 900
    assert left_take("policy") is None


def test_prediction_stands_beside_measurement(actor: Actor, globex: Organisation, gateway: StandIn) -> None:
    steps = told(prompt_fix.prompt_fix(actor))
    facts = {label: value for one in steps for label, value, _ in one.facts}
    assert facts["Name first, measured"] == facts["Name last, measured"] == "0.0 %"  # the stand-in knows no prefixes
    assert facts["Name last, predicted"] > "70"
    assert [one.tone for one in steps if one.verdict] == ["warn"]
    assert len(gateway.asked) == 8
    assert living_keys() == 0


def test_the_flood_replays_one_trace_twice(actor: Actor) -> None:
    steps = list(flood.flood(actor))
    facts = {label: value for one in steps for label, value, _ in one.facts}
    ours, shared = (float(facts[f"{name}: quiet"].removesuffix(" %")) for name in ("Fair shares", "One LRU cache"))
    assert ours > 80 > 20 > shared
    assert [one.tone for one in steps if one.verdict] == ["ok"]


def test_experiments_say_what_of_the_demo_is_missing(actor: Actor, gateway: StandIn) -> None:
    for run in (hit.hit, isolation.isolation, policy.policy, prompt_fix.prompt_fix):
        with pytest.raises(NotPossible, match="is not there any more"):
            list(run(actor))


class Stack:
    """Two processes that are started again when they have died, as the supervisor does."""

    def __init__(self) -> None:
        self.processes = {name: self._start() for name in (fault.ENGINE, fault.WEB)}
        self.started = 2

    def services(self) -> list[fault.Service]:
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.processes[name], self.started = self._start(), self.started + 1
        return [fault.Service(name, process.pid, "ready") for name, process in self.processes.items()]

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "60"])


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    found = Stack()
    monkeypatch.setattr(fault, "_services", found.services)
    monkeypatch.setattr(fault, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(fault, "LOOK_SECONDS", 0.1)
    yield found
    found.end()


def test_both_are_killed_once_and_requests_are_counted_meanwhile(
    actor: Actor, globex: Organisation, gateway: StandIn, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = iter([7, 0])
    later = iter(timezone.now() + timedelta(minutes=minute) for minute in (1, 2))
    monkeypatch.setattr(fault, "_compared", lambda: fault.Differences(next(later), next(compared)))
    steps = told(fault.fault(actor))
    assert stack.started == 4
    said = " ".join(one.words for one in steps)
    assert said.count("got SIGKILL") == 2
    assert said.count("is back after") == 2
    assert "7 tokens apart" in said
    assert "0 tokens apart" in said
    assert [one.tone for one in steps if one.verdict] == ["ok"]
    assert living_keys() == 0


CUT_SHORT = fault.Asked("", "The gateway broke off: The engine was lost", is_cut_short=True)
ANSWERED, REFUSED = fault.Asked("agent-2"), fault.Asked("", "The gateway answers 503: No engine")


@pytest.mark.parametrize(
    ("engine", "web", "is_shown"),
    [
        ([ANSWERED, ANSWERED], [ANSWERED], True),
        ([CUT_SHORT, ANSWERED], [ANSWERED], True),  # under way as the engine died: nobody can go on with its answer
        ([ANSWERED, CUT_SHORT], [ANSWERED], False),  # sent when it was dead already
        ([REFUSED, ANSWERED], [ANSWERED], False),
        ([ANSWERED], [CUT_SHORT], False),  # the web process answers nobody's request
        ([], [], True),
    ],
)
def test_the_one_request_that_was_under_way_may_be_cut_short_and_no_other(
    engine: list[fault.Asked], web: list[fault.Asked], is_shown: bool
) -> None:
    assert fault.are_answered(engine, web) is is_shown


def test_a_stream_that_ends_with_an_error_is_told_as_cut_short() -> None:
    told = {"error": {"message": "The engine was lost while it answered: this answer is not complete."}}
    with pytest.raises(CutShort, match="this answer is not complete"):
        asking._event(b"data: " + json.dumps(told).encode())
    assert fault._words([CUT_SHORT, ANSWERED]) == (
        "1 of 2 requests answered, 1 cut short by the kill and told so (1 by agent-2)"
    )


def test_without_a_stack_nothing_is_killed(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault, "_services", list)
    monkeypatch.setattr("os.kill", lambda *_: pytest.fail("killed something"))
    with pytest.raises(NotPossible, match="no agent-1-engine"):
        list(fault.fault(actor))


def test_the_status_of_the_stack_is_read_as_the_command_tells_it() -> None:
    told = [
        {"name": "web", "pid": 7, "state": "ready", "since": "", "port": 1},
        {"name": "x", "pid": None, "state": "-"},
    ]
    assert fault.services_read(told) == [fault.Service("web", 7, "ready")]
