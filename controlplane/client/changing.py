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
    where, rest, paper = place_read(place), session.rest, session.paper
    now = rest.get(f"{where.path}/policy")
    seen = _preview(rest, where, revision)
    same = "" if seen["diff"] else ", which changes nothing in force"
    if not session.as_json:
        present = shaped(now.body, {"revision": int})["revision"]
        paper.say(f"{where.name}: revision {present} → what revision {revision} said{same}")
        paper.say(*difference_lines(seen["diff"], paper))
        paper.say(*(f"    {paper.paint('!', YELLOW)} {cell(one['message'])}" for one in seen["warnings"]))
    if problems := fields_of(seen["problems"]):
        raise ClientError("\n".join(["It would be refused, nothing was changed:", *problem_lines(problems)]))
    agreed(f"This rolls {where.name} back", where.name, yes=yes)
    body = {"revision": revision, "note": note}
    done = shaped(rest.post(f"{where.path}/policy/rollback", body, headers=if_match(now)).body, {"revision": int})
    session.show(done, f"{where.name} is at revision {done['revision']}.")


def _preview(rest: Rest, place: Place, revision: int) -> Mapping[str, Any]:
    path, policy = f"{place.path}/policy", {}
    if revision:
        policy = shaped(rest.get(f"{path}/revisions/{revision}").body, {"policy": dict})["policy"]
    found: Mapping[str, Any] = shaped(rest.post(f"{path}/preview", {"policy": policy}, repeatable=True).body, A_PREVIEW)
    return found


@rest_command
@click.argument("place", help="acme or acme/chat")
@click.option("--include-pins", is_flag=True, help="pins, too; without it they are warmed again")
@wait_options
@yes_option
def purge(session: Session, place: str, include_pins: bool, wait: bool, timeout: float, yes: bool) -> int:
    where, rest = place_read(place), session.rest
    if not where.organisation:
        raise ClientError("this wants an organisation or a namespace, as in: acme or acme/chat")
    pins = ", pins included" if include_pins else ""
    agreed(f"From now on nothing cached in {where.name} matches any more{pins}", where.name, yes=yes)
    done = shaped(rest.post(f"{where.path}/purge", {"include_pins": include_pins}).body, STARTED)
    if not wait:
        session.show(done, f"Purged. Operation {done['operation']}")
        return 0
    operation = shaped(operation_wait(rest, done["operation"], seconds=timeout), {"receipts": list})
    ended = f"{operation['state']}, {len(operation['receipts'])} receipts"
    session.show(operation, f"Purged: {ended}. Operation {done['operation']}")
    return 0 if operation["state"] == DONE else 1


@rest_command
@click.argument("slug")
@name_option
def create_org(session: Session, slug: str, name: str | None) -> None:
    made = shaped(session.rest.post("/orgs", {"slug": slug, "name": name or slug}).body, {"slug": str})
    session.show(made, f"{made['slug']} is there, with its namespace default.")


@rest_command
@namespace_argument
@name_option
@click.option("--group", metavar="SLUG", help="which agents serve it")
def create_namespace(session: Session, place: str, name: str | None, group: str | None) -> None:
    where = namespace_read(place)
    body = {"slug": where.namespace, "name": name or "", **given(group=group)}
    made = shaped(session.rest.post(f"/orgs/{segment(where.organisation)}/namespaces", body).body, dict)
    session.show(made, f"{where.name} is there and inherits its policy.")


@rest_command
@click.argument("slug")
@name_option
def create_group(session: Session, slug: str, name: str | None) -> None:
    made = shaped(session.rest.post("/agent-groups", {"slug": slug, "name": name or slug}).body, {"slug": str})
    session.show(made, f"{made['slug']} is there.")


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
    made = shaped(session.rest.post(path, body).body, {**A_KEY, "secret": SECRET})
    words = f"Key {made['name']}; its secret is shown now and never again:"
    again = f"Key {made['name']}", f"luminet delete key {org} {made['id']}"
    secret_show(session, made, words, made["secret"], again=again)


@rest_command
@org_argument
@click.argument("email")
@click.option("--role", required=True, type=click.Choice(ROLES))
def create_member(session: Session, org: str, email: str, role: str) -> None:
    path = f"{organisation_read(org).path}/members"
    made = shaped(session.rest.post(path, {"email": email, "role": role}).body, AN_INVITATION)
    words = f"Give {made['email']} this link; it works once, until {cell(made['invitation_expires_at'])}:"
    again = f"The invitation of {made['email']}", f"luminet delete member {org} {made['email']}"
    secret_show(session, made, words, made["invitation_url"], again=again)


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
    keys = (shaped(one, A_KEY) for one in session.rest.pages(path))
    found = only_one([one for one in keys if key in (one["id"], one["name"], one["prefix"])], "key")
    agreed(f"This revokes the key {found['name']} ({found['prefix']}…) for good", found["name"], yes=yes)
    session.rest.delete(f"{path}/{segment(found['id'])}")
    session.show(found, f"The key {found['name']} is refused from now on.")


@rest_command
@org_argument
@click.argument("email", help="or its id")
@yes_option
def delete_member(session: Session, org: str, email: str, yes: bool) -> None:
    path = f"{organisation_read(org).path}/members"
    members = (shaped(one, A_MEMBER) for one in session.rest.pages(path))
    member = only_one([one for one in members if email in (one["id"], one["email"])], "member")
    agreed(f"This removes {member['email']} from {org}", member["email"], yes=yes)
    session.rest.delete(f"{path}/{segment(member['id'])}")
    session.show(member, f"{member['email']} sees nothing of {org} any more.")


def _delete(session: Session, place: Place, *, yes: bool) -> None:
    now = session.rest.get(place.path)
    shaped(now.body, dict)
    agreed(f"This deletes {place.name} with all that is in it", place.name, yes=yes)
    done = shaped(session.rest.delete(place.path, headers=if_match(now)).body or {}, dict)
    session.show({**now.body, **done}, f"{place.name} is deleted.")


def secret_show(
    session: Session, what: Mapping[str, Any], words: str, secret: str | None, *, again: tuple[str, str]
) -> None:
    """Print the secret. `again`: the created object, and the command that deletes it if its secret was lost."""
    if secret is None:
        lost = "was made, but the answer with its secret was lost, and no secret is shown twice"
        raise ClientError(f"{again[0]} {lost}. Take it back and make another: {again[1]}")
    if not session.as_json:
        print(plain(words), file=sys.stderr, flush=True)
    session.show(what, secret)


def only_one(found: list[Any], what: str) -> Any:
    if len(found) != 1:
        raise ClientError(f"there is no such {what}" if not found else f"that names {len(found)} {what}s: use the id")
    return found[0]


def given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
