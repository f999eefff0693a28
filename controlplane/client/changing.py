"""`rollback`, `purge`, `create` and `delete`: single actions, confirmed first if they cannot be undone."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from controlplane.client import amounts
from controlplane.client.asking import DONE, STARTED, agreed, operation_wait
from controlplane.client.changes import A_DIFFERENCE, difference_lines
from controlplane.client.command import (
    Session,
    namespace_argument,
    org_argument,
    rest_command,
    wait_options,
    yes_option,
)
from controlplane.client.errors import ClientError, fields_of, problem_lines
from controlplane.client.places import Place, namespace_read, organisation_read, place_read
from controlplane.client.rest import Rest, if_match, segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import YELLOW, cell, plain

SCOPES = ("infer", "stats:read", "policy:read", "policy:write", "admin")
ROLES = ("viewer", "editor", "admin")
A_PREVIEW = {"diff": [A_DIFFERENCE], "warnings": [{"message": str}], "problems": list}
A_KEY = {"id": str, "name": str, "prefix": str}
A_MEMBER = {"id": str, "email": str}
SECRET = (str, type(None))  # null if the first response was lost in transit
AN_INVITATION = {"email": str, "invitation_expires_at": str, "invitation_url": SECRET}
name_option = click.option("--name", help="how people call it")


@rest_command
@click.argument("place", help="fleet, acme or acme/chat")
@click.argument("revision", type=amounts.revision, help="0 is before the first")
@click.option("--note", default="", help="why, for whoever reads the history")
@yes_option
def rollback(session: Session, place: str, revision: int, note: str, yes: bool) -> None:
    scope, rest, paper = place_read(place), session.rest, session.paper
    current = rest.get(f"{scope.path}/policy")
    preview = _preview(rest, scope, revision)
    no_effect = "" if preview["diff"] else ", which changes nothing in force"
    if not session.as_json:
        present = shaped(current.body, {"revision": int})["revision"]
        paper.say(f"{scope.name}: revision {present} → what revision {revision} said{no_effect}")
        paper.say(*difference_lines(preview["diff"], paper))
        paper.say(*(f"    {paper.paint('!', YELLOW)} {cell(warning['message'])}" for warning in preview["warnings"]))
    if problems := fields_of(preview["problems"]):
        raise ClientError("\n".join(["It would be refused, nothing was changed:", *problem_lines(problems)]))
    agreed(f"This rolls {scope.name} back", scope.name, yes=yes)
    body = {"revision": revision, "note": note}
    response = shaped(
        rest.post(f"{scope.path}/policy/rollback", body, headers=if_match(current)).body, {"revision": int}
    )
    session.show(response, f"{scope.name} is at revision {response['revision']}.")


def _preview(rest: Rest, scope: Place, revision: int) -> Mapping[str, Any]:
    path, policy = f"{scope.path}/policy", {}
    if revision:
        policy = shaped(rest.get(f"{path}/revisions/{revision}").body, {"policy": dict})["policy"]
    preview: Mapping[str, Any] = shaped(
        rest.post(f"{path}/preview", {"policy": policy}, repeatable=True).body, A_PREVIEW
    )
    return preview


@rest_command
@click.argument("place", help="acme or acme/chat")
@click.option("--include-pins", is_flag=True, help="pins, too; without it they are warmed again")
@wait_options
@yes_option
def purge(session: Session, place: str, include_pins: bool, wait: bool, timeout: float, yes: bool) -> int:
    scope, rest = place_read(place), session.rest
    if not scope.organisation:
        raise ClientError("this wants an organisation or a namespace, as in: acme or acme/chat")
    pins = ", pins included" if include_pins else ""
    agreed(f"From now on nothing cached in {scope.name} matches any more{pins}", scope.name, yes=yes)
    started = shaped(rest.post(f"{scope.path}/purge", {"include_pins": include_pins}).body, STARTED)
    if not wait:
        session.show(started, f"Purged. Operation {started['operation']}")
        return 0
    operation = shaped(operation_wait(rest, started["operation"], seconds=timeout), {"receipts": list})
    ended = f"{operation['state']}, {len(operation['receipts'])} receipts"
    session.show(operation, f"Purged: {ended}. Operation {started['operation']}")
    return 0 if operation["state"] == DONE else 1


@rest_command
@click.argument("slug")
@name_option
def create_org(session: Session, slug: str, name: str | None) -> None:
    created = shaped(session.rest.post("/orgs", {"slug": slug, "name": name or slug}).body, {"slug": str})
    session.show(created, f"{created['slug']} is there, with its namespace default.")


@rest_command
@namespace_argument
@name_option
@click.option("--group", metavar="SLUG", help="which agents serve it")
def create_namespace(session: Session, place: str, name: str | None, group: str | None) -> None:
    scope = namespace_read(place)
    body = {"slug": scope.namespace, "name": name or "", **given(group=group)}
    created = shaped(session.rest.post(f"/orgs/{segment(scope.organisation)}/namespaces", body).body, dict)
    session.show(created, f"{scope.name} is there and inherits its policy.")


@rest_command
@click.argument("slug")
@name_option
def create_group(session: Session, slug: str, name: str | None) -> None:
    created = shaped(session.rest.post("/agent-groups", {"slug": slug, "name": name or slug}).body, {"slug": str})
    session.show(created, f"{created['slug']} is there.")


@rest_command
@org_argument
@click.argument("name", help="what it is for")
@click.option("--scope", multiple=True, required=True, type=click.Choice(SCOPES), help="may be repeated")
@click.option("--namespace", multiple=True, metavar="SLUG", help="bind it to these; may be repeated")
@click.option("--expires", type=amounts.expiry, metavar="WHEN", help="30d, 12h, or a time such as 2027-01-31T23:59:59Z")
def create_key(
    session: Session, org: str, name: str, scope: tuple[str, ...], namespace: tuple[str, ...], expires: str | None
) -> None:
    """Create a key. Standard output gets only the secret, so that `KEY=$(luminet create key …)` works."""
    body = {"name": name, "scopes": scope, **given(namespaces=namespace or None, expires_at=expires)}
    path = f"{organisation_read(org).path}/keys"
    created = shaped(session.rest.post(path, body).body, {**A_KEY, "secret": SECRET})
    words = f"Key {created['name']}; its secret is shown now and never again:"
    again = f"Key {created['name']}", f"luminet delete key {org} {created['id']}"
    secret_show(session, created, words, created["secret"], again=again)


@rest_command
@org_argument
@click.argument("email")
@click.option("--role", required=True, type=click.Choice(ROLES))
def create_member(session: Session, org: str, email: str, role: str) -> None:
    path = f"{organisation_read(org).path}/members"
    created = shaped(session.rest.post(path, {"email": email, "role": role}).body, AN_INVITATION)
    words = f"Give {created['email']} this link; it works once, until {cell(created['invitation_expires_at'])}:"
    again = f"The invitation of {created['email']}", f"luminet delete member {org} {created['email']}"
    secret_show(session, created, words, created["invitation_url"], again=again)


@rest_command
@org_argument
@yes_option
def delete_org(session: Session, org: str, yes: bool) -> None:
    _delete(session, organisation_read(org), yes=yes)


@rest_command
@namespace_argument
@yes_option
def delete_namespace(session: Session, place: str, yes: bool) -> None:
    _delete(session, namespace_read(place), yes=yes)


@rest_command
@org_argument
@click.argument("key", help="its id, its name or how it begins")
@yes_option
def delete_key(session: Session, org: str, key: str, yes: bool) -> None:
    path = f"{organisation_read(org).path}/keys"
    keys = (shaped(row, A_KEY) for row in session.rest.pages(path))
    api_key = only_one(
        [candidate for candidate in keys if key in (candidate["id"], candidate["name"], candidate["prefix"])], "key"
    )
    agreed(f"This revokes the key {api_key['name']} ({api_key['prefix']}…) for good", api_key["name"], yes=yes)
    session.rest.delete(f"{path}/{segment(api_key['id'])}")
    session.show(api_key, f"The key {api_key['name']} is refused from now on.")


@rest_command
@org_argument
@click.argument("email", help="or its id")
@yes_option
def delete_member(session: Session, org: str, email: str, yes: bool) -> None:
    path = f"{organisation_read(org).path}/members"
    members = (shaped(row, A_MEMBER) for row in session.rest.pages(path))
    member = only_one([candidate for candidate in members if email in (candidate["id"], candidate["email"])], "member")
    agreed(f"This removes {member['email']} from {org}", member["email"], yes=yes)
    session.rest.delete(f"{path}/{segment(member['id'])}")
    session.show(member, f"{member['email']} sees nothing of {org} any more.")


def _delete(session: Session, scope: Place, *, yes: bool) -> None:
    current = session.rest.get(scope.path)
    shaped(current.body, dict)
    agreed(f"This deletes {scope.name} with all that is in it", scope.name, yes=yes)
    response = shaped(session.rest.delete(scope.path, headers=if_match(current)).body or {}, dict)
    session.show({**current.body, **response}, f"{scope.name} is deleted.")


def secret_show(
    session: Session, created: Mapping[str, Any], words: str, secret: str | None, *, again: tuple[str, str]
) -> None:
    """Print the secret. `again`: the created object, and the command that deletes it if its secret was lost."""
    if secret is None:
        reason = "was made, but the answer with its secret was lost, and no secret is shown twice"
        raise ClientError(f"{again[0]} {reason}. Take it back and make another: {again[1]}")
    if not session.as_json:
        print(plain(words), file=sys.stderr, flush=True)
    session.show(created, secret)


def only_one(candidates: list[Any], noun: str) -> Any:
    if len(candidates) != 1:
        raise ClientError(
            f"there is no such {noun}" if not candidates else f"that names {len(candidates)} {noun}s: use the id"
        )
    return candidates[0]


def given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
