"""Check that web, worker and beat answer, and that certificates stay valid."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from controlplane.client.errors import Refused
from controlplane.client.shapes import shaped
from controlplane.doctor.broker import answering_redis
from controlplane.doctor.context import Context, in_background
from controlplane.doctor.database import django_models
from controlplane.doctor.finding import Finding, broken, counted, not_examined, note, ok, warning
from controlplane.doctor.home import home_facts
from controlplane.doctor.place import Place
from controlplane.doctor.views import answering_web, remote_web, signed_in_client
from controlplane.doctor.web import BadCertificate, WebSeen, certificate_end, web_see

WORKER_SECONDS = 1.0
PULSE_LATE_SECONDS, PULSE_DEAD_SECONDS = 10.0, 60.0
CERTIFICATE_WARN_DAYS = 21
A_CALLER = {"kind": str, "name": str, "scopes": [str]}


def nowhere(_: Context) -> Iterator[Finding]:
    """Report that there is nothing to check, as in an agent's container."""
    says = "There is no stack here, and no setting that says where a control plane is"
    do = "luminet doctor --home DIR beside an agent or a gateway, luminet doctor --url URL for a control plane far away"
    yield broken("place", says, do)


def web(context: Context) -> Iterator[Finding]:
    from controlplane.common.health import loopback_address

    environment = context.environment
    web_url = loopback_address(environment.web_host, environment.web_port)
    seconds = context.place.answer_seconds
    # Both at once: a check that waits for the servers in turn has no time left to report.
    public = None
    if environment.base_url != web_url:
        public = in_background(partial(web_see, f"{environment.base_url}/healthz", seconds))
    web_state, log = web_see(f"{web_url}/readyz", seconds), context.place.log_advice("web")
    if log or web_state.problem is None:
        yield web_finding(web_url, web_state, do=log or "see the web's log")
    else:
        yield not_examined("web", f"no web process listens on this machine ({web_url})")
    if public is None:
        return
    says = f"{environment.base_url}, where people go,"
    problem = public.result().problem
    if problem is None:
        yield ok("base-url", f"{says} leads to a control plane")
    else:
        problem_note = f"does not answer from here ({problem})"
        yield note("base-url", f"{says} {problem_note}; it need not, where a proxy in front is for others")


def remote(context: Context) -> Iterator[Finding]:
    url = context.place.url
    do = f"curl -i {url}/healthz; see that the address is right, and what stands in front of it"
    yield web_finding(url, remote_web(context), do=do)


def web_finding(address: str, web_state: WebSeen, *, do: str) -> Finding:
    """Evaluate the web by /readyz."""
    name = f"The web at {address}"
    if web_state.problem is not None:
        return broken("web", f"{name} does not answer: {web_state.problem}", do)
    checks = web_state.told.get("checks")
    if not isinstance(checks, dict):
        says = f"{name} answers with status {web_state.status}, and not as Luminet does"
        return broken("web", says, "see that the address leads to a control plane")
    if web_state.status == 200:
        return ok("web", f"{name} answers and is ready")
    wrong = "; ".join(f"{check}: {value}" for check, value in checks.items() if value != "ok")
    return broken("web", f"{name} is not ready: {wrong}", do)


def token(context: Context) -> Iterator[Finding]:
    rest = signed_in_client(context)
    try:
        caller: Mapping[str, Any] = shaped(rest.get("/whoami").body, A_CALLER)
    except Refused as refused:
        if refused.status != 401:
            raise
        do = "set LUMINET_TOKEN to an operator's token (luminet operator-token EMAIL, where the control plane runs)"
        yield broken("token", "The control plane does not know this token", do)
        return
    organisation = caller.get("organisation")
    owner = "an operator's" if organisation is None else f"the organisation {organisation}'s"
    yield ok("token", f"The token is {owner}, {caller['name']} ({', '.join(caller['scopes'])})")


def worker(context: Context) -> Iterator[Finding]:
    answering_redis(context)
    from celery import Celery

    control = Celery(broker=context.environment.redis_url, set_as_current=False).control
    names = [name for reply in control.ping(timeout=WORKER_SECONDS) or () for name in reply]
    if names:
        yield ok("worker", f"{counted(len(names), 'worker answers', 'workers answer')} through the broker")
    else:
        says = "No worker answers: nothing is pushed to agents, nothing is added up"
        yield broken("worker", says, context.place.worker_advice)


def beat(context: Context) -> Iterator[Finding]:
    answering_redis(context)
    from controlplane.common.health import NotReady, beat_check

    try:
        beat_check(context.environment.redis_url, now=time.time())
    except NotReady as error:
        problem = str(error).removeprefix("beat: ")
        yield broken("beat", f"Beat sends nothing: {problem}", context.place.worker_advice)
    else:
        yield ok("beat", "Beat sends")


def pulse(context: Context) -> Iterator[Finding]:
    if context.place.kind == "remote":
        reported = answering_web(context).told.get("pulse_age_seconds")
        age = reported if isinstance(reported, int | float) else None
    else:
        with django_models(context):
            from controlplane.live.selectors import clock_now, pulse_latest

            newest, now = pulse_latest(), clock_now()
            age = None if newest is None else (now - newest.recorded_at).total_seconds()
    yield pulse_finding(age, do=context.place.worker_advice)


def pulse_finding(age_seconds: float | None, *, do: str) -> Finding:
    if age_seconds is None:
        return warning("pulse", "Nothing has ever come from beat through broker and worker into the database", do)
    says = f"The last pulse came through beat, broker, worker and database {age_seconds:.0f} s ago"
    if age_seconds <= PULSE_LATE_SECONDS:
        return ok("pulse", says)
    judged = broken if age_seconds > PULSE_DEAD_SECONDS else warning
    return judged("pulse", f"{says}: it should every 2 s", do)


def certificate(context: Context) -> Iterator[Finding]:
    installation = context.place
    url = str(home_facts(context).get("url", "")) if installation.kind == "agent" else _public_url(installation)
    if not url.startswith("https://"):
        return
    problem, ends_at = None, None
    try:
        ends_at = certificate_end(url, context.place.answer_seconds)
    except BadCertificate as error:
        problem = str(error)
    yield certificate_finding(urlsplit(url).hostname or url, problem, ends_at, datetime.now(UTC))


def _public_url(installation: Place) -> str:
    return installation.environment.base_url if installation.environment else installation.url


def is_https(installation: Place) -> bool:
    return _public_url(installation).startswith("https://")


def certificate_finding(host: str, problem: str | None, ends_at: datetime | None, now: datetime) -> Finding:
    renew = f"renew the certificate in the proxy in front of {host}"
    if problem is not None or ends_at is None:
        return broken("tls", f"The certificate of {host} is not good: {problem or 'it names no end'}", renew)
    days = (ends_at - now).total_seconds() / 86_400
    says = f"The certificate of {host} is good until {ends_at:%Y-%m-%d}, {days:.0f} days more"
    if days > CERTIFICATE_WARN_DAYS:
        return ok("tls", says)
    return warning("tls", says, f"{renew}, and see why nothing did")
