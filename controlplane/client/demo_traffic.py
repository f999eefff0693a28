"""`demo-traffic`: show the state of the demo's traffic and switch it."""

from controlplane.client.command import Session, rest_command
from controlplane.client.shapes import shaped

PATH = "/demo-traffic"
A_SWITCH = {
    "is_here": bool,
    "state": (str, type(None)),
    "is_on": bool,
    "changed_by": (str, type(None)),
    "changed_at": (str, type(None)),
}


@rest_command
def demo_traffic_status(session: Session) -> None:
    _show(session, session.rest.get(PATH).body)


@rest_command
def demo_traffic_start(session: Session) -> None:
    _switch(session, is_on=True)


@rest_command
def demo_traffic_stop(session: Session) -> None:
    _switch(session, is_on=False)


def _switch(session: Session, *, is_on: bool) -> None:
    _show(session, session.rest.ask("PUT", PATH, {"is_on": is_on}, repeatable=True).body)


def _show(session: Session, answer: object) -> None:
    switch = shaped(answer, A_SWITCH)
    cause = f", since {switch['changed_by']} said so" if switch["changed_by"] else ""
    lines = [f"Demo traffic is {'on' if switch['is_on'] else 'off'}{cause}."]
    if not switch["is_here"]:
        lines.append("No process sends any here, so nothing comes of it.")
    elif switch["is_on"] and switch["state"] == "waits":
        lines.append("It waits for the gateway.")
    session.show(switch, *lines)
