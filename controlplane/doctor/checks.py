"""Which checks there are for a place, in the order in which they are told."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from controlplane.doctor.examining import Check
from controlplane.doctor.finding import Finding, NotExamined, not_examined
from controlplane.doctor.judging import clocks, reaching
from controlplane.doctor.judging import versions as judging_versions
from controlplane.doctor.looking import beside, guarding, machine, stores, versions, web
from controlplane.doctor.once import Once
from controlplane.doctor.place import Place, luminet

TITLES: Mapping[str, str] = {
    "versions": "Versions",
    "reachability": "Reachability",
    "migrations": "Migrations",
    "permissions": "Permissions",
    "secrets": "Secrets",
    "clock": "Clock",
    "disk": "Disk",
    "machine": "Memory and CPU",
    "gpu": "Computing",
    "ports": "Ports",
    "chromium": "Browser tests",
    "fleet": "Fleet",
    "numbers": "Numbers",
    "trail": "Trail",
}
DEEP = 1000.0  # times as long as others may the walk through the trail take
WORKER_SECONDS = 1.0
GPU = beside.SLOWER + 0.05
Findings = Iterable[Finding]


def checks_of(place: Place, token: str = "") -> list[Check]:
    if place.kind == "stack" and not place.is_checkout and place.supervisor is None:
        return [Check("reachability", "place", lambda: [reaching.nowhere()])]
    of = {"stack": _of_the_stack, "processes": _of_processes, "agent": _of_an_agent}
    found = [*_of_versions(place), *(of[place.kind](place) if place.kind in of else _of_remote(place, token))]
    return sorted(found, key=lambda one: [*TITLES].index(one.area))


def _of_versions(place: Place) -> list[Check]:
    found = [Check("versions", "here", lambda: versions.here(place))]
    if place.kind != "remote":
        found.append(Check("versions", "constraints", lambda: versions.constraints(place)))
    return found


def _of_the_machine(place: Place, pools: Callable[[], int | None]) -> list[Check]:
    return [
        Check("clock", "steady clock", machine.steady_clock),
        Check("disk", "disks", lambda: machine.disks(place)),
        Check("machine", "memory", lambda: machine.memory(pools())),
        Check("machine", "limits", machine.limits),
    ]


def _of_the_stack(place: Place) -> list[Check]:
    found = [
        Check("versions", "engine packages", lambda: versions.engine(place)),
        Check("permissions", "files", lambda: guarding.stack_files(place)),
        Check("secrets", "secrets", lambda: guarding.secrets(place)),
        Check("gpu", "GPU", lambda: beside.gpus(place), GPU),
    ]
    if place.bad:
        found.append(Check("secrets", "settings", lambda: guarding.settings(place)))
    if place.is_checkout:
        found.append(Check("chromium", "Chromium", lambda: beside.chromium(place)))
    found.append(Check("ports", "ports", lambda: _stack("ports", place)))
    if place.supervisor is None:
        found.append(Check("reachability", "stack", lambda: _stack("standing", place)))
        found += [
            Check(area, TITLES[area].lower(), _missing_stack) for area in ("migrations", "fleet", "numbers", "trail")
        ]
        return [*found, *_of_the_machine(place, lambda: None)]
    found.append(Check("reachability", "parts", lambda: _stack("parts", place)))
    return [*found, *_of_a_control_plane(place)]


def _stack(name: str, place: Place) -> Findings:
    """By name, because it wants what only an embedded stack has installed."""
    from controlplane.doctor.looking import stack

    look: Callable[[Place], Findings] = getattr(stack, name)
    return look(place)


def _missing_stack() -> Findings:
    raise NotExamined("nothing runs here")


def _of_processes(place: Place) -> list[Check]:
    found = [
        Check("secrets", "settings", lambda: guarding.settings(place)),
        Check("secrets", "secrets", lambda: guarding.secrets(place)),
        Check("permissions", "files", lambda: guarding.processes_files(place)),
    ]
    if place.has_engine:
        found.append(Check("gpu", "GPU", lambda: beside.gpus(place), GPU))
    else:
        found.append(Check("gpu", "GPU", lambda: [not_examined("GPU", "no engine here")]))
    return [*found, *_of_a_control_plane(place)]


def _of_a_control_plane(place: Place) -> list[Check]:
    """What a running stack and production have alike: the database, the broker, the parts, the fleet."""
    return _ControlPlane(place).checks()


class _ControlPlane:
    """Its checks, and the facts that they share."""

    def __init__(self, place: Place) -> None:
        self.place = place
        is_stack = place.kind == "stack"
        self.logs = str(place.config.logs) if is_stack and place.config else None
        self.advice = reaching.stores_advice(self.logs)
        self.again = "make down, then make up" if is_stack else "see the logs of worker and beat: is either down?"
        self.migrate = f"{luminet()} run migrate" if not is_stack else "make down, then make up"
        self.database = Once(lambda: stores.database_see(self._environment().database_url))
        self.redis = Once(lambda: stores.redis_see(self._environment().redis_url))
        self.ready = Once(self._ready)
        self.agents = Once(self._agents)

    def checks(self) -> list[Check]:
        from controlplane.doctor.looking import django_side as side

        def of_django(look: Callable[[], Findings]) -> Callable[[], Findings]:
            def looked() -> Iterator[Finding]:
                self.ready()
                yield from look()

            return looked

        found = [
            Check("versions", "servers", self._servers),
            Check("reachability", "database", self._database),
            Check("reachability", "Redis", self._redis),
            Check("reachability", "logins at Redis", self._logins),
            Check("reachability", "a login at Redis", self._agent_login),
            Check("reachability", "web", self._web),
            Check("reachability", "worker", self._worker),
            Check("reachability", "beat", self._beat),
            Check("reachability", "pulse", of_django(lambda: side.pulse(self.again))),
            Check("migrations", "migrations", of_django(lambda: side.migrations(self.migrate))),
            Check("secrets", "master key", of_django(side.master_key)),
            Check("clock", "clock", self._clock),
            Check("fleet", "agents", self._fleet),
            Check("fleet", "formats", of_django(side.formats)),
            Check("fleet", "rollouts", of_django(side.rollouts)),
            Check("fleet", "join tokens", of_django(side.join_tokens)),
            Check("fleet", "alerts", of_django(lambda: side.alerts(self.again))),
            Check("numbers", "reconciliation", of_django(lambda: side.reconciliation(self.again))),
            Check("trail", "owner", of_django(side.owner)),
            Check("trail", "anchors", of_django(side.anchors)),
            Check("trail", "days", of_django(lambda: side.days(self.again))),
            *_of_the_machine(self.place, self._pools),
        ]
        if self.place.is_deep:
            found.append(Check("trail", "audit trail", of_django(side.trail), DEEP))
        else:
            found.append(Check("trail", "audit trail", _shallow))
        environment = self.place.environment
        if environment is not None and environment.is_https:
            found.append(Check("reachability", "TLS", lambda: _certificate(environment.base_url)))
        return found

    def _environment(self) -> Any:
        if self.place.environment is None:
            raise NotExamined("settings cannot be read")
        return self.place.environment

    def _ready(self) -> None:
        from controlplane.doctor.looking.django_side import django_ready

        if self.database().problem is not None:
            raise NotExamined("the database does not answer")
        django_ready(self.place)

    def _database(self) -> Findings:
        yield from reaching.database(self.database(), self.advice)

    def _redis(self) -> Findings:
        yield from reaching.redis(self.redis(), self.advice)

    def _servers(self) -> Findings:
        database, redis = self.database(), self.redis()
        if database.problem is None:
            yield judging_versions.postgres(database.version)
        if redis.problem is None:
            yield judging_versions.redis(redis.version)

    def _broker(self) -> reaching.RedisSeen:
        seen = self.redis()
        if seen.problem is not None:
            raise NotExamined("Redis does not answer")
        return seen

    def _logins(self) -> Findings:
        from controlplane.doctor.looking.django_side import login_names

        seen, expected = self._broker(), None
        if self.database().problem is None:
            self.ready()
            expected = login_names()
        yield from reaching.logins(seen, expected=expected)

    def _agent_login(self) -> Findings:
        from controlplane.doctor.looking.agent_login import agent_login_problem

        if self._broker().acl_problem is not None:
            raise NotExamined("the control plane's own login may not make one")
        yield reaching.agent_login(agent_login_problem(self._environment().redis_url))

    def _web(self) -> Findings:
        from controlplane.common.health import loopback_address

        environment = self._environment()
        own = loopback_address(environment.web_host, environment.web_port)
        seen = web.web_see(f"{own}/readyz")
        is_stack = self.place.kind == "stack"
        if is_stack or seen.problem is None:
            do = f"make down, then make up; {self.logs}/web.log says why" if is_stack else "see the web's log"
            yield reaching.web(own, seen.status, seen.told, seen.problem, do=do)
        else:
            yield not_examined("web", f"no web process listens on this machine ({own})")
        if environment.base_url != own:
            yield reaching.base_url(environment.base_url, web.web_see(f"{environment.base_url}/healthz").problem)

    def _worker(self) -> Findings:
        self._broker()
        from celery import Celery

        replies = Celery(broker=self._environment().redis_url, set_as_current=False).control.ping(
            timeout=WORKER_SECONDS
        )
        names = [name for reply in replies or () for name in reply]
        yield reaching.workers(names, do=self.again)

    def _beat(self) -> Findings:
        self._broker()
        from controlplane.common.health import NotReady, beat_check

        try:
            beat_check(self._environment().redis_url, now=time.time())
        except NotReady as error:
            yield reaching.beat(str(error).removeprefix("beat: "), do=self.again)
        else:
            yield reaching.beat(None, do=self.again)

    def _clock(self) -> Findings:
        seen = self.database()
        if seen.problem is not None:
            raise NotExamined("the database does not answer")
        yield clocks.apart("the database", seen.ahead_seconds)

    def _agents(self) -> list[Mapping[str, Any]]:
        from controlplane.doctor.looking.django_side import agent_views

        self.ready()
        return list(agent_views())

    def _fleet(self) -> Findings:
        from controlplane.doctor.judging import fleet

        yield from fleet.agents(self.agents())
        yield from fleet.enforcement(self.agents())

    def _pools(self) -> int | None:
        """Of engines of this stack, which compute in this machine's memory."""
        if self.place.kind != "stack":
            return None
        try:
            views = self.agents()
        except Exception:  # whatever it is, the check of the fleet tells it
            return None
        return sum(int(one["pool"]["capacity_bytes"]) for one in views if one["accelerator"] is None)


def _shallow() -> Findings:
    raise NotExamined("luminet doctor --deep walks all of it")


def _certificate(url: str) -> Findings:
    from datetime import UTC, datetime

    seen = web.certificate_see(url)
    if seen.away is not None:  # who answers there, and who must, is another check's
        raise NotExamined(f"{urlsplit(url).hostname} cannot be reached from here: {seen.away}")
    yield reaching.certificate(urlsplit(url).hostname or url, seen.problem, seen.ends_at, datetime.now(UTC))


def _of_an_agent(place: Place) -> list[Check]:
    if place.home is None:
        return []
    told = Once(lambda: beside.home_see(place))

    def tls() -> Findings:
        url = str(told().get("url", ""))
        return _certificate(url) if url.startswith("https://") else []

    return [
        Check("reachability", "home", lambda: beside.home(told())),
        Check("reachability", "control plane", lambda: beside.home_reaches(told())),
        Check("reachability", "TLS", tls),
        Check("permissions", "files", lambda: guarding.home_files(place)),
        Check("clock", "clock", lambda: beside.home_clock(told())),
        Check("gpu", "GPU", lambda: beside.gpus(place), GPU),
        *_of_the_machine(place, lambda: None),
    ]


def _of_remote(place: Place, token: str) -> list[Check]:
    from controlplane.doctor.looking import remote

    there = remote.Remote(place.url, token)
    seen = Once(lambda: web.web_see(f"{place.url}/readyz"))
    who = Once(lambda: remote.caller_see(there))

    def answers() -> web.WebSeen:
        found = seen()
        if found.problem is not None:
            raise NotExamined("the control plane does not answer")
        return found

    def of_rest(look: Callable[[remote.Remote], Findings]) -> Callable[[], Findings]:
        def looked() -> Iterator[Finding]:
            answers()
            if not token:
                raise NotExamined("LUMINET_TOKEN is not set")
            yield from look(there)

        return looked

    def ready() -> Findings:
        do = f"curl -i {place.url}/healthz; see that the address is right, and what stands in front of it"
        found = seen()
        yield reaching.web(place.url, found.status, found.told, found.problem, do=do)

    def pulse() -> Findings:
        age = answers().told.get("pulse_age_seconds")
        yield reaching.pulse(age if isinstance(age, int | float) else None, do=remote.DO)

    def clock() -> Findings:
        ahead = answers().ahead_seconds
        if ahead is None:
            raise NotExamined("the control plane does not say its time")
        yield clocks.apart("the control plane", ahead, exact=False)

    def version() -> Findings:
        from controlplane.common.version import version as ours

        answers()
        yield judging_versions.luminet(ours(), remote.their_version(there))

    found = [
        Check("versions", "control plane", version),
        Check("reachability", "web", ready),
        Check("reachability", "token", of_rest(lambda _: remote.caller(who))),
        Check("reachability", "pulse", pulse),
        Check("clock", "clock", clock),
        Check("fleet", "agents", of_rest(remote.agents)),
        Check("fleet", "rollouts", of_rest(remote.rollouts)),
        Check("fleet", "join tokens", of_rest(remote.join_tokens)),
        Check("fleet", "alerts", of_rest(remote.alerts)),
        Check("numbers", "reconciliation", of_rest(remote.reconciliation)),
    ]
    if place.url.startswith("https://"):
        found.append(Check("reachability", "TLS", lambda: _certificate(place.url)))
    return found
