"""`rollback`, `purge`, `create` and `delete`: single deeds, asked about beforehand where they cannot be undone."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from controlplane.client.asking import DONE, STARTED, agreed, operation_wait
from controlplane.client.changes import A_DIFFERENCE, difference_lines
from controlplane.client.errors import ClientError, fields_of, problem_lines
from controlplane.client.places import Place, namespace_read, organisation_read, place_read
from controlplane.client.rest import Rest, if_match, segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import YELLOW, Paper, cell, plain

A_PREVIEW = {"diff": [A_DIFFERENCE], "warnings": [{"message": str}], "problems": list}
A_KEY = {"id": str, "name": str, "prefix": str}
A_MEMBER = {"id": str, "email": str}
SECRET = (str, type(None))  # null where the first answer was lost on its way
AN_INVITATION = {"email": str, "invitation_expires_at": str, "invitation_url": SECRET}


def rollback(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    place = place_read(options.place)
    now = rest.get(f"{place.path}/policy")
    seen = _preview(rest, place, options.revision)
    same = "" if seen["diff"] else ", which changes nothing in force"
    if not options.json:
        revision = shaped(now.body, {"revision": int})["revision"]
        paper.say(f"{place.name}: revision {revision} → what revision {options.revision} said{same}")
        paper.say(*difference_lines(seen["diff"], paper))
        paper.say(*(f"    {paper.paint('!', YELLOW)} {cell(one['message'])}" for one in seen["warnings"]))
    if problems := fields_of(seen["problems"]):
        raise ClientError("\n".join(["It would be refused, nothing was changed:", *problem_lines(problems)]))
    agreed(f"This rolls {place.name} back", place.name, yes=options.yes)
    body = {"revision": options.revision, "note": options.note}
    done = shaped(rest.post(f"{place.path}/policy/rollback", body, headers=if_match(now)).body, {"revision": int})
    if options.json:
        paper.json(done)
    else:
        paper.say(f"{place.name} is at revision {done['revision']}.")
    return 0


def _preview(rest: Rest, place: Place, revision: int) -> Mapping[str, Any]:
    path, policy = f"{place.path}/policy", {}
    if revision:
        policy = shaped(rest.get(f"{path}/revisions/{revision}").body, {"policy": dict})["policy"]
    found: Mapping[str, Any] = shaped(rest.post(f"{path}/preview", {"policy": policy}, repeatable=True).body, A_PREVIEW)
    return found


def purge(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    place = place_read(options.place)
    if not place.organisation:
        raise ClientError("this wants an organisation or a namespace, as in: acme or acme/chat")
    pins = ", pins included" if options.include_pins else ""
    agreed(f"From now on nothing cached in {place.name} matches any more{pins}", place.name, yes=options.yes)
    done = shaped(rest.post(f"{place.path}/purge", {"include_pins": options.include_pins}).body, STARTED)
    operation = operation_wait(rest, done["operation"], seconds=options.timeout) if options.wait else None
    if options.json:
        paper.json(operation or done)
    elif operation is None:
        paper.say(f"Purged. Operation {done['operation']}")
    else:
        receipts = shaped(operation, {"receipts": list})["receipts"]
        paper.say(f"Purged: {operation['state']}, {len(receipts)} receipts. Operation {done['operation']}")
    return 0 if operation is None or operation["state"] == DONE else 1


def create_org(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    made = shaped(rest.post("/orgs", {"slug": options.slug, "name": options.name or options.slug}).body, {"slug": str})
    return made_told(options, paper, made, f"{made['slug']} is there, with its namespace default.")


def create_namespace(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    place = namespace_read(options.place)
    body = {"slug": place.namespace, "name": options.name or "", **given(group=options.group)}
    made = shaped(rest.post(f"/orgs/{segment(place.organisation)}/namespaces", body).body, dict)
    return made_told(options, paper, made, f"{place.name} is there and inherits its policy.")


def create_group(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    body = {"slug": options.slug, "name": options.name or options.slug}
    made = shaped(rest.post("/agent-groups", body).body, {"slug": str})
    return made_told(options, paper, made, f"{made['slug']} is there.")


def create_key(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """The secret alone on standard output, so that `KEY=$(luminet create key …)` works."""
    body = {
        "name": options.name,
        "scopes": options.scope,
        **given(namespaces=options.namespace or None, expires_at=options.expires),
    }
    made = shaped(rest.post(f"{organisation_read(options.org).path}/keys", body).body, {**A_KEY, "secret": SECRET})
    words = f"Key {made['name']}; its secret is shown now and never again:"
    again = f"Key {made['name']}", f"luminet delete key {options.org} {made['id']}"
    return secret_told(options, paper, made, words, made["secret"], again=again)


def create_member(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    place = organisation_read(options.org)
    body = {"email": options.email, "role": options.role}
    made = shaped(rest.post(f"{place.path}/members", body).body, AN_INVITATION)
    words = f"Give {made['email']} this link; it works once, until {cell(made['invitation_expires_at'])}:"
    again = f"The invitation of {made['email']}", f"luminet delete member {options.org} {made['email']}"
    return secret_told(options, paper, made, words, made["invitation_url"], again=again)


def delete_org(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _delete(options, rest, paper, organisation_read(options.org))


def delete_namespace(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    return _delete(options, rest, paper, namespace_read(options.place))


def delete_key(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """By id, name or beginning, whatever is at hand."""
    path = f"{organisation_read(options.org).path}/keys"
    keys = (shaped(one, A_KEY) for one in rest.pages(path))
    key = only_one([one for one in keys if options.key in (one["id"], one["name"], one["prefix"])], "key")
    agreed(f"This revokes the key {key['name']} ({key['prefix']}…) for good", key["name"], yes=options.yes)
    rest.delete(f"{path}/{segment(key['id'])}")
    return made_told(options, paper, key, f"The key {key['name']} is refused from now on.")


def delete_member(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    path = f"{organisation_read(options.org).path}/members"
    members = (shaped(one, A_MEMBER) for one in rest.pages(path))
    member = only_one([one for one in members if options.email in (one["id"], one["email"])], "member")
    agreed(f"This removes {member['email']} from {options.org}", member["email"], yes=options.yes)
    rest.delete(f"{path}/{segment(member['id'])}")
    return made_told(options, paper, member, f"{member['email']} sees nothing of {options.org} any more.")


def _delete(options: argparse.Namespace, rest: Rest, paper: Paper, place: Place) -> int:
    now = rest.get(place.path)
    shaped(now.body, dict)
    agreed(f"This deletes {place.name} with all that is in it", place.name, yes=options.yes)
    done = shaped(rest.delete(place.path, headers=if_match(now)).body or {}, dict)
    return made_told(options, paper, {**now.body, **done}, f"{place.name} is deleted.")


def made_told(options: argparse.Namespace, paper: Paper, what: Mapping[str, Any], words: str) -> int:
    if options.json:
        paper.json(what)
    else:
        paper.say(words)
    return 0


def secret_told(
    options: argparse.Namespace,
    paper: Paper,
    what: Mapping[str, Any],
    words: str,
    secret: str | None,
    *,
    again: tuple[str, str],
) -> int:
    """`again`: what was made, and the command that takes it back where its secret was lost."""
    if secret is None:
        lost = "was made, but the answer with its secret was lost, and no secret is shown twice"
        raise ClientError(f"{again[0]} {lost}. Take it back and make another: {again[1]}")
    if options.json:
        paper.json(what)
    else:
        print(plain(words), file=sys.stderr, flush=True)
        paper.say(secret)
    return 0


def only_one(found: list[Any], what: str) -> Any:
    if len(found) != 1:
        raise ClientError(f"there is no such {what}" if not found else f"that names {len(found)} {what}s: use the id")
    return found[0]


def given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
