"""`demo-traffic`: whether the demo's traffic is wanted, looked up and switched."""

import argparse

from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped
from controlplane.client.tables import Paper

PATH = "/demo-traffic"
A_SWITCH = {
    "is_here": bool,
    "state": (str, type(None)),
    "is_on": bool,
    "changed_by": (str, type(None)),
    "changed_at": (str, type(None)),
}


def status(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _shown(options, paper, rest.get(PATH).body)


def start(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _switched(options, rest, paper, is_on=True)


def stop(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _switched(options, rest, paper, is_on=False)


def _switched(options: argparse.Namespace, rest: Rest, paper: Paper, *, is_on: bool) -> int:
    return _shown(options, paper, rest.ask("PUT", PATH, {"is_on": is_on}, repeatable=True).body)


def _shown(options: argparse.Namespace, paper: Paper, told: object) -> int:
    found = shaped(told, A_SWITCH)
    if options.json:
        paper.json(found)
        return 0
    who = f", since {found['changed_by']} said so" if found["changed_by"] else ""
    paper.say(f"Demo traffic is {'on' if found['is_on'] else 'off'}{who}.")
    if not found["is_here"]:
        paper.say("No process sends any here, so nothing comes of it.")
    elif found["is_on"] and found["state"] == "waits":
        paper.say("It waits for the gateway.")
    return 0
