"""`join-token`, `drain`, `resume`, `delete agent`, `rollout`: operators' actions on agents and rollouts."""

import time

import click

from controlplane.client import amounts
from controlplane.client.asking import DONE, STARTED, agreed, idle_wait, operation_wait
from controlplane.client.changing import SECRET, given, only_one, secret_show
from controlplane.client.command import Session, at_most_one, rest_command, wait_options, yes_option
from controlplane.client.rest import segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import plain

AGENT_KINDS = ("engine", "gateway")
AN_AGENT = {"id": str, "kind": str, "state": str}
A_JOIN_TOKEN = {"id": str, "name": str, "prefix": str}
A_ROLLOUT = {"id": str, "place": str, "revision": int, "base_revision": int, "state": str, "why": str}
TOKENS = "/fleet/join-tokens"
agent_argument = click.argument("agent", help="its id")
rollout_argument = click.argument("rollout", metavar="ID", help="luminet get rollouts shows it")


@at_most_one("--uses", "--any-number")
@rest_command
@click.argument("name", help="what it is for")
@click.option("--kind", type=click.Choice(AGENT_KINDS), help="who may join with it; else both")
@click.option("--group", metavar="SLUG", help="the agent group it leads into")
@click.option("--agent", metavar="ID", help="whoever joins with it gets this id, or takes that agent over")
@click.option("--uses", type=amounts.count, help="how often it may be used (1)")
@click.option("--any-number", is_flag=True, help="as often as wanted, until it expires")
@click.option("--expires-in", type=amounts.span, default="1h", help="30m, 12h, 7d (an hour)")
def join_token_create(
    session: Session, name: str, uses: int | None, any_number: bool, expires_in: int, **options: str | None
) -> None:
    """Create a token. Standard output gets only the secret, so that `TOKEN=$(luminet join-token create …)` works."""
    uses = None if any_number else uses or 1
    body = {"name": name, "uses": uses, "expires_in_seconds": expires_in, **given(**options)}
    created = shaped(session.rest.post(TOKENS, body).body, {**A_JOIN_TOKEN, "secret": SECRET})
    words = f"Join token {created['name']}; its secret is shown now and never again:"
    again = f"Join token {created['name']}", f"luminet join-token revoke {created['id']}"
    secret_show(session, created, words, created["secret"], again=again)


@rest_command
@click.argument("token", help="its id, its name or how it begins")
@yes_option
def join_token_revoke(session: Session, token: str, yes: bool) -> None:
    tokens = (shaped(row, A_JOIN_TOKEN) for row in session.rest.pages(TOKENS))
    join_token = only_one(
        [candidate for candidate in tokens if token in (candidate["id"], candidate["name"], candidate["prefix"])],
        "join token",
    )
    agreed(
        f"This revokes the join token {join_token['name']} ({join_token['prefix']}…) for good",
        join_token["name"],
        yes=yes,
    )
    session.rest.delete(f"{TOKENS}/{segment(join_token['id'])}")
    session.show(join_token, f"Nobody joins with {join_token['name']} any more. Agents that did stay.")


@rest_command
@agent_argument
@wait_options
def drain(session: Session, agent: str, wait: bool, timeout: float) -> int:
    """Drain the agent. --wait also waits for its last answers: its receipt only says that it accepts nothing new."""
    deadline = time.monotonic() + timeout
    status = _operate(session, agent, "drain", "Gateways send it nothing new", wait, timeout)
    if wait and status == 0:
        idle_wait(session.rest, agent, deadline=deadline)
    return status


@rest_command
@agent_argument
@wait_options
def resume(session: Session, agent: str, wait: bool, timeout: float) -> int:
    return _operate(session, agent, "resume", "Gateways send it requests again", wait, timeout)


@rest_command
@agent_argument
@yes_option
def delete_agent(session: Session, agent: str, yes: bool) -> None:
    """Revoke the agent; it remains visible."""
    path = f"/fleet/agents/{segment(agent)}"
    agent_record = shaped(session.rest.get(path).body, AN_AGENT)
    agreed(f"This takes {agent_record['id']} ({agent_record['kind']}) out of the fleet", agent_record["id"], yes=yes)
    session.rest.delete(path)
    session.show(agent_record, f"{agent_record['id']} is out of the fleet: its token and its login have ended.")


@rest_command
@rollout_argument
@yes_option
def rollout_abort(session: Session, rollout: str, yes: bool) -> None:
    rollout_record = shaped(session.rest.get(f"/rollouts/{segment(rollout)}").body, A_ROLLOUT)
    message = f"This takes {rollout_record['place']} from revision {rollout_record['revision']} back to what revision"
    agreed(f"{message} {rollout_record['base_revision']} said, at every agent", rollout_record["place"], yes=yes)
    _steer(session, rollout, "abort")


def _operate(session: Session, agent: str, action: str, words: str, wait: bool, timeout: float) -> int:
    started = shaped(session.rest.post(f"/fleet/agents/{segment(agent)}/{action}", {}).body, STARTED)
    operation = operation_wait(session.rest, started["operation"], seconds=timeout) if wait else None
    ended = f": {operation['state']}" if operation else ""
    session.show(operation or started, f"{plain(agent)}: {words}. Operation {started['operation']}{ended}")
    return 0 if operation is None or operation["state"] == DONE else 1


def _steer(session: Session, rollout: str, action: str) -> None:
    updated = shaped(session.rest.post(f"/rollouts/{segment(rollout)}/{action}", {}).body, A_ROLLOUT)
    session.show(
        updated,
        f"{updated['place']} revision {updated['revision']}: {updated['state']}. {updated['why']}",
    )


def _steering(action: str) -> click.Command:
    @rest_command
    @rollout_argument
    def command(session: Session, rollout: str) -> None:
        _steer(session, rollout, action)

    return command


rollout_pause, rollout_resume, rollout_promote = map(_steering, ("pause", "resume", "promote"))
