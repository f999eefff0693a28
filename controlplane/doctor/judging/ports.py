"""Whether the ports of the embedded stack can be had, or are held by it."""

from dataclasses import dataclass

from controlplane.doctor.finding import Finding, broken, ok


@dataclass(frozen=True, slots=True)
class PortSeen:
    part: str
    host: str
    port: int
    setting: str
    is_free: bool
    problem: str | None = None  # why it cannot be had at all, in words of the system
    holder: str | None = None  # "nginx (process 12)"; None: not known
    is_ours: bool = False  # held by a process of this stack


def ports(seen: list[PortSeen], *, runs: bool) -> list[Finding]:
    found = [finding for one in seen if (finding := _bad(one, runs=runs)) is not None]
    good = [one for one in seen if _bad(one, runs=runs) is None]
    if good:
        told = ", ".join(f"{one.port} ({one.part})" for one in good)
        state = "held by this stack" if runs else "free for this stack"
        found.insert(0, ok("ports", f"Ports {state}: {told}"))
    return found


def _bad(one: PortSeen, *, runs: bool) -> Finding | None:
    if one.problem is not None:
        told = f"Nothing can listen on {one.host} port {one.port} for {one.part}: {one.problem}"
        return broken("ports", told, f"{one.setting}={_other(one.port)} make up")
    # A part of a running stack that does not listen is told where parts are; who is not seen may be it.
    if one.is_ours or one.is_free or (runs and one.holder is None):
        return None
    by = one.holder or "another program (who it is, its user or root can see: ss -ltnp)"
    told = f"Port {one.port}, which {one.part} wants, is held by {by}"
    return broken("ports", told, f"stop that, or {one.setting}={_other(one.port)} make up")


def _other(port: int) -> int:
    return port + 10 if port < 65_000 else port - 100
