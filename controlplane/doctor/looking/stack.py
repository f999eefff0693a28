"""The embedded stack: its ports, its processes, and whom it left behind."""

import errno
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any

from controlplane.common.health import loopback_address
from controlplane.doctor.finding import Finding, NotExamined
from controlplane.doctor.judging import ports as judging
from controlplane.doctor.judging import reaching
from controlplane.doctor.judging.ports import PortSeen
from controlplane.doctor.looking import web
from controlplane.doctor.place import Place
from controlplane.stack.bootstrap import is_installed
from controlplane.stack.config import StackConfig
from controlplane.stack.leftovers import birth_of, read_status
from controlplane.stack.ports import port_problem

ENGINE_PARTS = ("agent-", "gateway")


def ports(place: Place) -> Iterator[Finding]:
    config = place.config
    if config is None:
        raise NotExamined("settings cannot be read")
    holders, ours = _listeners(), _family(place.supervisor)
    runs = place.supervisor is not None
    chosen = running(place, config) if runs else wanted(config)
    yield from judging.ports([_port(*one, holders, ours) for one in chosen], runs=runs)


def running(place: Place, config: StackConfig) -> list[tuple[str, str, int, str]]:
    """As it was started, whatever this terminal's variables say by now."""
    settings = {part: setting for part, _, _, setting in wanted(config)}
    rows = [(str(row["name"]), int(row["port"])) for row in read_status(config.status_file) if row.get("port")]
    host = place.environ.get("LUMINET_WEB_HOST", config.web_host)
    return [(name, host if name == "web" else "127.0.0.1", port, settings.get(name, "")) for name, port in rows]


def wanted(config: StackConfig) -> list[tuple[str, str, int, str]]:
    """Part, host, port, and the setting that would choose another."""
    agents = [
        one
        for agent in config.agents
        for one in (
            (f"{agent.name}-engine", "127.0.0.1", agent.port, "LUMINET_ENGINE_PORT"),
            (agent.name, "127.0.0.1", agent.status_port, "LUMINET_ENGINE_PORT"),
        )
    ]
    gateway = [("gateway", "127.0.0.1", config.gateway_port, "LUMINET_GATEWAY_PORT")] if config.agents else []
    stores = [
        (name, "127.0.0.1", port, setting)
        for name, port, setting in (
            ("postgres", config.postgres_port, "LUMINET_POSTGRES_PORT"),
            ("redis", config.redis_port, "LUMINET_REDIS_PORT"),
        )
        if port
    ]
    return [("web", config.web_host, config.web_port, "LUMINET_WEB_PORT"), *gateway, *agents, *stores]


def _port(
    part: str, host: str, port: int, setting: str, holders: Mapping[int, tuple[int, str]], ours: frozenset[int]
) -> PortSeen:
    problem = port_problem(host, port)
    taken = problem is not None and problem.errno == errno.EADDRINUSE
    pid, name = holders.get(port, (0, ""))
    return PortSeen(
        part=part,
        host=host,
        port=port,
        setting=setting,
        is_free=problem is None,
        problem=None if problem is None or taken else (problem.strerror or str(problem)).lower(),
        holder=f"{name} (process {pid})" if pid else None,
        is_ours=pid in ours,
    )


def _listeners() -> dict[int, tuple[int, str]]:
    """Who listens, by port, as far as we may see it."""
    import psutil

    found: dict[int, tuple[int, str]] = {}
    try:
        rows = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return {}
    for row in rows:
        if row.status == psutil.CONN_LISTEN and row.pid and row.laddr:
            try:
                found.setdefault(row.laddr.port, (row.pid, psutil.Process(row.pid).name()))
            except psutil.Error:
                continue
    return found


def _family(supervisor: int | None) -> frozenset[int]:
    import psutil

    if supervisor is None:
        return frozenset()
    try:
        return frozenset({supervisor, *(one.pid for one in psutil.Process(supervisor).children(recursive=True))})
    except psutil.Error:
        return frozenset({supervisor})


def standing(place: Place) -> Iterator[Finding]:
    """Of a stack that does not run: whether anything of it is left."""
    rows = read_status(place.config.status_file) if place.config else []
    living = [str(row["name"]) for row in rows if _lives(row)]
    yield reaching.nothing_runs(living, is_installed=is_installed("control"))


def _lives(row: Mapping[str, Any]) -> bool:
    pid, born = row.get("pid"), row.get("born")
    found = birth_of(pid) if isinstance(pid, int) else None
    return found is not None and isinstance(born, (int, float)) and abs(found - born) < 60


def parts(place: Place) -> Iterator[Finding]:
    """Of a running one: what its supervisor cannot keep up, and whether agents and gateway answer."""
    config = place.config
    if config is None:
        raise NotExamined("settings cannot be read")
    rows = {str(row["name"]): row for row in read_status(config.status_file)}
    yield from reaching.parts([*rows.values()], logs=str(config.logs))
    asked = [row for name, row in rows.items() if name.startswith(ENGINE_PARTS) and row.get("port")]
    seen = _together({str(row["name"]): f"{loopback_address('127.0.0.1', row['port'])}/health" for row in asked})
    for row in asked:
        name = str(row["name"])
        if row["state"] in ("unhealthy", "restarting"):
            continue
        found = seen[name]
        problem = found.problem or (None if found.status == 200 else f"status {found.status}")
        yield reaching.part(name, problem, found.told, log=str(config.logs / f"{name}.log"))


def _together(urls: Mapping[str, str]) -> dict[str, web.WebSeen]:
    answers: dict[str, Future[web.WebSeen]] = {name: Future() for name in urls}
    for name, url in urls.items():
        Thread(target=lambda to, url: to.set_result(web.web_see(url)), args=(answers[name], url), daemon=True).start()
    return {name: future.result() for name, future in answers.items()}
