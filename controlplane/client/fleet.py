"""`join-token`, `drain`, `resume`, `delete agent`, `rollout`: what operators do to agents and to what is on its way."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from controlplane.client.asking import DONE, STARTED, agreed, idle_wait, operation_wait
from controlplane.client.changing import SECRET, given, made_told, only_one, secret_told
from controlplane.client.rest import Rest, segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import Paper, plain

AN_AGENT = {"id": str, "kind": str, "state": str}
A_JOIN_TOKEN = {"id": str, "name": str, "prefix": str}
A_ROLLOUT = {"id": str, "place": str, "revision": int, "base_revision": int, "state": str, "why": str}
TOKENS = "/fleet/join-tokens"


def join_token_create(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """The secret alone on standard output, so that `TOKEN=$(luminet join-token create …)` works."""
    body = {
        "name": options.name,
        "uses": None if options.any_number else options.uses,
        "expires_in_seconds": options.expires_in,
        **given(kind=options.kind, group=options.group, agent=options.agent),
    }
    made = shaped(rest.post(TOKENS, body).body, {**A_JOIN_TOKEN, "secret": SECRET})
    words = f"Join token {made['name']}; its secret is shown now and never again:"
    again = f"Join token {made['name']}", f"luminet join-token revoke {made['id']}"
    return secret_told(options, paper, made, words, made["secret"], again=again)


def join_token_revoke(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """By id, name or beginning, whatever is at hand."""
    tokens = (shaped(one, A_JOIN_TOKEN) for one in rest.pages(TOKENS))
    token = only_one([one for one in tokens if options.token in (one["id"], one["name"], one["prefix"])], "join token")
    agreed(f"This revokes the join token {token['name']} ({token['prefix']}…) for good", token["name"], yes=options.yes)
    rest.delete(f"{TOKENS}/{segment(token['id'])}")
    return made_told(options, paper, token, f"Nobody joins with {token['name']} any more. Agents that did stay.")


def drain(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """Waiting is for the last answer, too: the agent's receipt alone says that it takes nothing new."""
    deadline = time.monotonic() + options.timeout
    status = _operated(options, rest, paper, "drain", "Gateways send it nothing new")
    if options.wait and status == 0:
        idle_wait(rest, options.agent, deadline=deadline)
    return status


def resume(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _operated(options, rest, paper, "resume", "Gateways send it requests again")


def delete_agent(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """Revokes it; it stays to be looked at."""
    path = f"/fleet/agents/{segment(options.agent)}"
    agent = shaped(rest.get(path).body, AN_AGENT)
    agreed(f"This takes {agent['id']} ({agent['kind']}) out of the fleet", agent["id"], yes=options.yes)
    rest.delete(path)
    return made_told(options, paper, agent, f"{agent['id']} is out of the fleet: its token and its login have ended.")


def rollout_pause(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _steered(options, rest, paper, "pause")


def rollout_resume(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _steered(options, rest, paper, "resume")


def rollout_promote(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _steered(options, rest, paper, "promote")


def rollout_abort(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = shaped(rest.get(f"/rollouts/{segment(options.rollout)}").body, A_ROLLOUT)
    back = f"This takes {found['place']} from revision {found['revision']} back to what revision"
    agreed(f"{back} {found['base_revision']} said, at every agent", found["place"], yes=options.yes)
    return _steered(options, rest, paper, "abort")


def _operated(options: argparse.Namespace, rest: Rest, paper: Paper, deed: str, words: str) -> int:
    done = shaped(rest.post(f"/fleet/agents/{segment(options.agent)}/{deed}", {}).body, STARTED)
    operation = operation_wait(rest, done["operation"], seconds=options.timeout) if options.wait else None
    ended = f": {operation['state']}" if operation else ""
    found: Mapping[str, Any] = operation or done
    made_told(options, paper, found, f"{plain(options.agent)}: {words}. Operation {done['operation']}{ended}")
    return 0 if operation is None or operation["state"] == DONE else 1


def _steered(options: argparse.Namespace, rest: Rest, paper: Paper, deed: str) -> int:
    found = shaped(rest.post(f"/rollouts/{segment(options.rollout)}/{deed}", {}).body, A_ROLLOUT)
    return made_told(
        options, paper, found, f"{found['place']} revision {found['revision']}: {found['state']}. {found['why']}"
    )
