"""Join a machine to the fleet, and renew its credentials on later starts."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.credentials import (
    Credentials,
    credentials_keep,
    credentials_read,
    credentials_told,
    with_broker_at,
)
from engine_agent.sidecar.errors import BadAddress, CannotJoin, ControlPlaneAway, ControlPlaneRefused
from engine_agent.sidecar.home import home_lock
from engine_agent.sidecar.link import Link, address_check

log = logging.getLogger("luminet.sidecar")
REVOKED, UNKNOWN = "revoked", (401, "unknown_token")
REVOKED_SECONDS = 30.0
RETRY_SECONDS = (0.5, 15.0)
OF_THE_AGENT_BEFORE = ("snapshot", "ledger", "spool")


@dataclass(frozen=True, slots=True)
class Joining:
    """The operator's settings for joining. A machine that has joined needs none of them."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)  # a join token
    name: str | None = None
    plain_http_hosts: tuple[str, ...] = ()
    broker: str | None = None  # the broker's address as seen from this machine, if it differs from the control plane's


async def credentials_ensured(home: Path, joining: Joining, *, kind: str, about: Mapping[str, Any]) -> Credentials:
    """Return the saved credentials, renewed by the control plane, or enrol and retry until it answers.

    Raise BadAddress, BadCredentials, BadHome or CannotJoin. A revoked agent waits before it raises, because its
    supervisor restarts it at once.
    """
    with closing(home_lock(home)):  # so that two sidecars cannot overwrite each other's credentials
        credentials = await _ensured(home, joining, kind=kind, about=about)
    return with_broker_at(credentials, joining.broker) if joining.broker else credentials


async def _ensured(home: Path, joining: Joining, *, kind: str, about: Mapping[str, Any]) -> Credentials:
    stored = credentials_read(home)
    hosts = joining.plain_http_hosts or (stored.plain_http_hosts if stored else ())
    url = joining.url and address_check(joining.url, hosts)
    if stored is None:
        return await _joined(home, joining, url, kind=kind, about=about)
    address_check(url or stored.url, hosts)
    if hosts != stored.plain_http_hosts:
        stored = replace(stored, plain_http_hosts=hosts)
        credentials_keep(home, stored)
    try:
        return await _renewed(home, stored, url or stored.url)
    except ControlPlaneAway as problem:
        log.warning("%s goes on with what it holds: %s", stored.agent, problem)
        return stored
    except ControlPlaneRefused as problem:
        # A revocation names one agent; a join token admits any machine and must not undo it.
        if problem.code == REVOKED:
            log.error("%s was revoked, and stops: to have this machine join anew, delete %s", stored.agent, home)
            await asyncio.sleep(REVOKED_SECONDS)
            raise CannotJoin(f"{stored.agent} is revoked") from None
        if not joining.token or (problem.status, problem.code) != UNKNOWN:
            raise CannotJoin(f"{stored.agent} is not wanted any more: {problem}; join again with a token") from None
        log.warning("%s is not known any more, and joins anew: %s", stored.agent, problem)
        return await _joined(home, joining, url or stored.url, kind=kind, about=about)


async def _renewed(home: Path, stored: Credentials, url: str) -> Credentials:
    link = Link(url, stored.token, ControlPlaneClock())
    try:
        answer = await link.credentials(rotate=False)
    finally:
        await link.close()
    renewed = replace(credentials_told(answer, url=url, token=stored.token), plain_http_hosts=stored.plain_http_hosts)
    if renewed != stored:
        credentials_keep(home, renewed)
    return renewed


async def _joined(home: Path, joining: Joining, url: str | None, *, kind: str, about: Mapping[str, Any]) -> Credentials:
    if not url:
        raise BadAddress("--join: say where the control plane is, like https://luminet.example.com")
    if not joining.token:
        raise CannotJoin("--token: a join token is needed: luminet join-token create")
    answer = await _enrolled(url, {"token": joining.token, "kind": kind, "name": joining.name, "about": dict(about)})
    credentials = replace(credentials_told(answer, url=url), plain_http_hosts=joining.plain_http_hosts)
    for name in OF_THE_AGENT_BEFORE:
        (home / name).unlink(missing_ok=True)
    credentials_keep(home, credentials)
    log.info("joined %s as %s, in the group %s", url, credentials.agent, credentials.group)
    return credentials


async def _enrolled(url: str, request: Mapping[str, Any]) -> dict[str, Any]:
    wait, longest = RETRY_SECONDS
    link = Link(url, "", ControlPlaneClock())
    try:
        while True:
            try:
                return await link.enrol(request)
            except ControlPlaneRefused as problem:
                raise CannotJoin(f"{url} does not let us join: {problem}") from None
            except ControlPlaneAway as problem:
                log.warning("%s does not answer, and is asked again in %g s: %s", url, wait, problem)
            await asyncio.sleep(wait)
            wait = min(longest, wait * 2)
    finally:
        await link.close()
