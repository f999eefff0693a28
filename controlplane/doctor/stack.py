"""Checks of the embedded stack's ports and processes. Imported only where the stack's packages are installed."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlplane.common.health import loopback_address
from controlplane.doctor.context import Context, in_background
from controlplane.doctor.finding import Finding, NotExamined, broken, ok
from controlplane.doctor.place import RESTART
from controlplane.doctor.web import web_see
from controlplane.stack.bootstrap import is_installed
from controlplane.stack.config import StackConfig
from controlplane.stack.leftovers import process_of, read_status
from controlplane.stack.ports import LOCALHOST, Listener, listeners, port_problem

ENGINE_PARTS = ("agent-", "gateway")
UNWELL = ("unhealthy", "restarting")


@dataclass(frozen=True, slots=True)
class PortSeen:
    listener: Listener
    error: OSError | None = None  # why nothing can listen there now
    holder: str | None = None  # "nginx (process 12)"; None: unknown
    is_ours: bool = False  # a process of this stack has the port


def ports(context: Context) -> list[Finding]:
    installation, config = context.place, _config(context)
    holders, our_pids = _listeners(), _family(installation.supervisor)
    runs = installation.supervisor is not None
    ports_seen = []
    for listener in _running(config, installation.environ) if runs else listeners(config):
        pid, name = holders.get(listener.port, (0, ""))
        holder = f"{name} (process {pid})" if pid else None
        ports_seen.append(PortSeen(listener, port_problem(listener.host, listener.port), holder, pid in our_pids))
    return port_findings(ports_seen, runs=runs)


def _config(context: Context) -> StackConfig:
    if context.place.config is None:
        raise NotExamined("settings cannot be read")
    return context.place.config


def _running(config: StackConfig, environ: Mapping[str, str]) -> Iterator[Listener]:
    """Yield the ports that the running stack uses, whatever this terminal's variables are now."""
    settings = {part: setting for part, _, _, setting in listeners(config)}
    web_host = environ.get("LUMINET_WEB_HOST", config.web_host)
    for row in read_status(config.status_file):
        if row.get("port"):
            name = str(row["name"])
            host = web_host if name == "web" else LOCALHOST
            yield Listener(name, host, int(row["port"]), settings.get(name, ""))


def _listeners() -> dict[int, tuple[int, str]]:
    """Return id and name of the process that listens on each port, as far as we may see it."""
    import psutil

    holders: dict[int, tuple[int, str]] = {}
    try:
        rows = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return {}
    for row in rows:
        if row.status == psutil.CONN_LISTEN and row.pid and row.laddr:
            try:
                holders.setdefault(row.laddr.port, (row.pid, psutil.Process(row.pid).name()))
            except psutil.Error:
                continue
    return holders


def _family(supervisor: int | None) -> frozenset[int]:
    import psutil

    if supervisor is None:
        return frozenset()
    try:
        return frozenset({supervisor, *(child.pid for child in psutil.Process(supervisor).children(recursive=True))})
    except psutil.Error:
        return frozenset({supervisor})


def port_findings(ports: Sequence[PortSeen], *, runs: bool) -> list[Finding]:
    problems = [_port_problem(port, runs=runs) for port in ports]
    findings = [finding for finding in problems if finding is not None]
    listeners_ok = [port.listener for port, problem in zip(ports, problems, strict=True) if problem is None]
    if not listeners_ok:
        return findings
    names = ", ".join(f"{listener.port} ({listener.part})" for listener in listeners_ok)
    return [ok("ports", f"Ports {'held by' if runs else 'free for'} this stack: {names}"), *findings]


def _port_problem(port_state: PortSeen, *, runs: bool) -> Finding | None:
    part, host, port, setting = port_state.listener
    alternative_port = port + 10 if port < 65_000 else port - 100
    if port_state.error is not None and port_state.error.errno != errno.EADDRINUSE:
        why = (port_state.error.strerror or str(port_state.error)).lower()
        says = f"Nothing can listen on {host} port {port} for {part}: {why}"
        return broken("ports", says, f"{setting}={alternative_port} make up")
    # The check of the parts reports a part that does not listen. A process that we cannot see may be that part.
    if port_state.error is None or port_state.is_ours or (runs and port_state.holder is None):
        return None
    holder = port_state.holder or "another program (who it is, its user or root can see: ss -ltnp)"
    says = f"Port {port}, which {part} wants, is held by {holder}"
    return broken("ports", says, f"stop that, or {setting}={alternative_port} make up")


def stopped(context: Context) -> Iterator[Finding]:
    """Check whether a stopped stack has left processes."""
    config = context.place.config
    rows = read_status(config.status_file) if config else []
    names = [str(row["name"]) for row in rows if process_of(row) is not None]
    yield stopped_finding(names, is_installed=is_installed("control"))


def stopped_finding(left_over: Sequence[str], *, is_installed: bool) -> Finding:
    if left_over:
        return broken("stack", f"The stack was killed, and {', '.join(left_over)} still run without it", RESTART)
    says = "Nothing runs from here" if is_installed else "Nothing is installed here yet, and nothing runs"
    return broken("stack", says, "make up")


def parts(context: Context) -> Iterator[Finding]:
    """Check a running stack: the parts that its supervisor cannot keep up, and whether agents and gateway answer."""
    config = _config(context)
    rows = {str(row["name"]): row for row in read_status(config.status_file)}
    for name, row in rows.items():
        if row["state"] in UNWELL:
            says = f"The process {name} is {row['state']}"
            yield broken(f"process-{name}", says, f"tail -n 30 {config.logs}/{name}.log")
    seconds = context.place.answer_seconds
    engine_parts = [name for name, row in rows.items() if name.startswith(ENGINE_PARTS) and row.get("port")]
    answers = {
        name: in_background(partial(_health, rows[name], seconds))
        for name in engine_parts
        if rows[name]["state"] not in UNWELL
    }
    for name, answer in answers.items():
        yield part_finding(name, *answer.result(), log=str(config.logs / f"{name}.log"))


def _health(row: Mapping[str, Any], seconds: float) -> tuple[str | None, Mapping[str, Any]]:
    """Return why the part does not answer, if so, and what it reports."""
    health = web_see(f"{loopback_address(LOCALHOST, row['port'])}/health", seconds)
    return health.problem or (None if health.status == 200 else f"status {health.status}"), health.told


def part_finding(name: str, problem: str | None, health: Mapping[str, Any], *, log: str) -> Finding:
    """Evaluate an engine, a sidecar or a gateway by its /health."""
    if problem is not None:
        return broken(name, f"The part {name} does not answer: {problem}", f"tail -n 30 {log}")
    spooled = health.get("spooled_reports")
    spool_note = f", {spooled} reports wait in its spool" if isinstance(spooled, int) and spooled else ""
    return ok(name, f"The part {name} answers{spool_note}")
