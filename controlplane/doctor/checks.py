"""The list of all checks. The command, its help, the report and the exit status derive from it."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from controlplane.doctor import (
    broker,
    clock,
    database,
    fleet,
    gpu,
    home,
    machine,
    permissions,
    reachability,
    records,
    settings,
    versions,
)
from controlplane.doctor.context import Context
from controlplane.doctor.examining import Check
from controlplane.doctor.finding import Finding, NotExamined
from controlplane.doctor.place import Place, Situation

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
DEEP = 1000.0  # the walk through the trail may take this many times as long as other checks
GPU = gpu.PATIENCE + 0.05

STOPPED: Sequence[Situation] = ("stopped",)
STACK: Sequence[Situation] = ("stopped", "stack")
PROCESSES: Sequence[Situation] = ("processes",)
RUNNING: Sequence[Situation] = ("stack", "processes")
CONTROL_PLANE: Sequence[Situation] = (*STOPPED, *RUNNING)
AGENT: Sequence[Situation] = ("agent",)
HERE: Sequence[Situation] = (*CONTROL_PLANE, *AGENT)
REMOTE: Sequence[Situation] = ("remote",)


def of_stack(name: str) -> Callable[[Context], Iterable[Finding]]:
    """Return the stack's check of this name, imported late: its module needs packages of the embedded stack."""

    def look(context: Context) -> Iterable[Finding]:
        module = importlib.import_module("controlplane.doctor.stack")
        check: Callable[[Context], Iterable[Finding]] = getattr(module, name)
        return check(context)

    return look


def nothing_runs(_: Context) -> Iterable[Finding]:
    raise NotExamined("nothing runs here")


CHECKS: Sequence[Check] = (  # in the order of the report
    Check("versions", "here", versions.here, (*HERE, *REMOTE)),
    Check("versions", "constraints", versions.constraints, HERE),
    Check("versions", "engine packages", versions.engine_packages, STACK),
    Check("versions", "servers", versions.servers, RUNNING),
    Check("versions", "control plane", versions.control_plane, REMOTE),
    Check("reachability", "place", reachability.nowhere, ("nowhere",)),
    Check("reachability", "stack", of_stack("stopped"), STOPPED),
    Check("reachability", "parts", of_stack("parts"), ("stack",)),
    Check("reachability", "database", database.database, RUNNING),
    Check("reachability", "Redis", broker.redis, RUNNING),
    Check("reachability", "logins at Redis", broker.logins, RUNNING),
    Check("reachability", "a login at Redis", broker.trial_login, RUNNING),
    Check("reachability", "web", reachability.web, RUNNING),
    Check("reachability", "web", reachability.remote, REMOTE),
    Check("reachability", "token", reachability.token, REMOTE),
    Check("reachability", "worker", reachability.worker, RUNNING),
    Check("reachability", "beat", reachability.beat, RUNNING),
    Check("reachability", "pulse", reachability.pulse, (*RUNNING, *REMOTE)),
    Check("reachability", "home", home.home, AGENT),
    Check("reachability", "control plane", home.logins, AGENT),
    Check("reachability", "TLS", reachability.certificate, (*RUNNING, *REMOTE), applies=reachability.is_https),
    Check("reachability", "TLS", reachability.certificate, AGENT),
    Check("migrations", "migrations", nothing_runs, STOPPED),
    Check("migrations", "migrations", records.migrations, RUNNING),
    Check("permissions", "files", permissions.stack_files, STACK),
    Check("permissions", "files", permissions.processes_files, PROCESSES),
    Check("permissions", "files", permissions.agent_files, AGENT),
    Check("secrets", "settings", settings.settings, PROCESSES),
    Check("secrets", "secrets", settings.secrets, CONTROL_PLANE),
    Check("secrets", "settings", settings.settings, STACK, applies=lambda installation: bool(installation.bad)),
    Check("secrets", "master key", settings.master_key, RUNNING),
    Check("clock", "clock", clock.clock, (*RUNNING, *AGENT, *REMOTE)),
    Check("clock", "steady clock", clock.steady_clock, HERE),
    Check("disk", "disks", machine.disks, HERE),
    Check("machine", "memory", machine.memory, HERE),
    Check("machine", "limits", machine.limits, HERE),
    Check("gpu", "GPU", gpu.gpu, HERE, GPU),
    Check("ports", "ports", of_stack("ports"), STACK),
    Check("chromium", "Chromium", machine.chromium, STACK, applies=lambda installation: installation.is_checkout),
    Check("fleet", "fleet", nothing_runs, STOPPED),
    Check("fleet", "agents", fleet.agents, (*RUNNING, *REMOTE)),
    Check("fleet", "formats", fleet.formats, RUNNING),
    Check("fleet", "rollouts", fleet.rollouts, (*RUNNING, *REMOTE)),
    Check("fleet", "join tokens", fleet.join_tokens, (*RUNNING, *REMOTE)),
    Check("fleet", "alerts", fleet.alerts, (*RUNNING, *REMOTE)),
    Check("numbers", "numbers", nothing_runs, STOPPED),
    Check("numbers", "reconciliation", records.reconciliation, (*RUNNING, *REMOTE)),
    Check("trail", "trail", nothing_runs, STOPPED),
    Check("trail", "owner", records.owner, RUNNING),
    Check("trail", "anchors", records.anchors, RUNNING),
    Check("trail", "days", records.days, RUNNING),
    Check("trail", "audit trail", records.trail, RUNNING, DEEP),
)


def checks_of(installation: Place) -> list[Check]:
    return [check for check in CHECKS if installation.situation in check.situations and check.applies(installation)]
