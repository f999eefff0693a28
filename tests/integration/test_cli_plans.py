"""What `luminet apply` may delete, and reviewed plans: applied exactly, or not at all."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_django.live_server_helper import LiveServer

from controlplane.client import configs
from tenants.actor import SYSTEM
from tenants.levels import Place
from tenants.models import AuditHead, Namespace, Organisation
from tenants.services.namespaces import namespace_create
from tests.database.factories import publish
from tests.support.luminet_runs import Run, luminet_runner
from tests.web.api import make_key, make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
OUTDATED = 3
MINE = {"acme": {"name": "Acme", "namespaces": {"chat": None, "mail": None}}, "initech": {"name": "Initech"}}


@pytest.fixture
def luminet(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return luminet_runner(live_server, monkeypatch, capsys)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_document(organisations: Any, **more: Any) -> str:
        path = tmp_path / f"file-{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump({"version": 1, "organisations": organisations, **more}))
        return str(path)

    return write_document


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def living() -> set[str]:
    namespaces = Namespace.objects.filter(deleted_at=None, organisation__deleted_at=None)
    return {f"{org}/{slug}" for org, slug in namespaces.values_list("organisation__slug", "slug")}


def head() -> bytes:
    """Differs once anything was done."""
    return bytes(AuditHead.objects.get().hash)


# Pruning


def test_partial_file_deletes_nothing_of_others(luminet: Run, write: Callable[..., str]) -> None:
    make_organisation("globex", "a")
    luminet("apply", "-f", write({"umbrella": {"namespaces": {"b": None}}}, owner="team-b"))
    partial = {"acme": {"name": "Acme", "namespaces": {"chat": None}}}
    before = living()
    status, _, err = luminet("apply", "-f", write(partial), "--prune", "--yes")
    assert (status, "prune: needs a scope: name organisations (--org" in err) == (1, True)
    assert living() == before
    assert luminet("apply", "-f", write(MINE, owner="team-a"))[0] == 0
    status, out, _ = luminet("apply", "-f", write(partial, owner="team-a"), "--prune", "--yes", "--wait")
    assert status == 0
    assert "2 to delete (3 with all inside)." in out
    assert living() == before | {"acme/default", "acme/chat"}


def test_org_scope_prunes_only_inside(luminet: Run, write: Callable[..., str]) -> None:
    make_organisation("acme", "chat", "old")
    make_organisation("globex", "a")
    file = write({"acme": {"namespaces": {"chat": None}}, "globex": {"namespaces": {}}})
    assert luminet("apply", "-f", file, "--prune", "--org", "acme", "--yes")[0] == 0
    assert living() == {"acme/chat", "acme/default", "globex/a", "globex/default"}
    status, _, err = luminet("apply", "-f", file, "--prune", "--org", "umbrella", "--yes")
    assert (status, "organisations.umbrella: --org" in err) == (1, True)
    assert luminet("plan", "-f", file, "--org", "acme")[0] == 1


def test_equal_owners_delete_nothing_of_each_other(luminet: Run, write: Callable[..., str], tmp_path: Path) -> None:
    """acme's people and the operators both call their file prod."""
    key = make_key(make_organisation("acme"))
    customers = write({"acme": {"namespaces": {"chat": None}}}, owner="prod")
    operators = write({"acme": {"namespaces": {"mail": None}}}, owner="prod")
    assert luminet("apply", "-f", customers, token=key)[0] == 0
    assert luminet("apply", "-f", operators)[0] == 0
    before = living()
    assert luminet("apply", "-f", operators, "--prune", "--yes")[0] == 0
    assert luminet("apply", "-f", customers, "--prune", "--yes", token=key)[0] == 0
    assert living() == before == {"acme/chat", "acme/default", "acme/mail"}
    shown = luminet("get", "namespaces", "acme", "--json", token=key)[1]
    assert {one["slug"]: one["owner"] for one in json.loads(shown)} == {
        "chat": "acme/prod",
        "default": "",
        "mail": "prod",
    }
    status, out, _ = luminet("apply", "-f", write({"globex": None}, owner="prod"), "--prune", "--yes")
    assert (status, "1 to delete." in out) == (0, True)
    assert living() == {"acme/chat", "acme/default", "globex/default"}


def test_owner_export_is_of_the_callers_file(luminet: Run, write: Callable[..., str]) -> None:
    key = make_key(make_organisation("acme"))
    luminet("apply", "-f", write({"acme": {"namespaces": {"chat": None}}}, owner="prod"), token=key)
    luminet("apply", "-f", write({"acme": {"namespaces": {"mail": None}}}, owner="prod"))
    for token, slug in ((key, "chat"), (None, "mail")):
        document = yaml.safe_load(luminet("export", "--owner", "prod", token=token)[1])
        assert (document["owner"], document["organisations"]) == ("prod", {"acme": {"namespaces": {slug: {}}}})


def test_equal_owners_take_over_when_asked(luminet: Run, write: Callable[..., str]) -> None:
    key = make_key(make_organisation("acme"))
    editor = make_key(Organisation.objects.get(), "policy:write")
    file = write({"acme": {"namespaces": {"chat": None}}}, owner="prod")
    luminet("apply", "-f", file, token=key)
    for token, words in ((None, "belongs to acme/prod, not to prod"), (key, "belongs to prod (operators), not to")):
        status, _, err = luminet("apply", "-f", file, token=token)
        assert (status, words in err) == (1, True)
        assert luminet("apply", "-f", file, "--take-ownership", token=token)[0] == 0
    luminet("apply", "-f", file, "--take-ownership")
    status, _, err = luminet("apply", "-f", file, "--take-ownership", token=editor)
    assert (status, "namespace.update needs the scope admin" in err) == (1, True)


def test_unowned_objects_need_taking_over(luminet: Run, write: Callable[..., str]) -> None:
    make_organisation("acme", "chat")
    file = write({"acme": {"policy": {"ttl_seconds": 60}, "namespaces": {"chat": None}}}, owner="team-a")
    before = head()
    for command in ("plan", "apply"):
        status, _, err = luminet(command, "-f", file)
        assert status == 1
        assert "organisations.acme: exists, and no file owns it: --take-ownership" in err
        assert "organisations.acme.namespaces.chat: exists, and no file owns it: --take-ownership" in err
    assert head() == before
    assert luminet("apply", "-f", file, "--take-ownership")[0] == 0
    assert luminet("plan", "-f", file, "--prune")[0] == 0


def test_others_objects_need_taking_over(luminet: Run, write: Callable[..., str]) -> None:
    luminet("apply", "-f", write(MINE, owner="team-a"))
    file = write({"acme": {"namespaces": {"chat": {"name": "Chat"}}}}, owner="team-b")
    before = head()
    for command in ("plan", "apply"):
        status, _, err = luminet(command, "-f", file)
        assert (status, "namespaces.chat: belongs to team-a, not to team-b" in err) == (1, True)
    assert head() == before
    status, out, _ = luminet("apply", "-f", file, "--take-ownership")
    assert (status, "owner: team-a → team-b" in out) == (0, True)
    assert "team-b" in luminet("get", "namespaces", "acme")[1]
    assert "team-a" in luminet("get", "orgs")[1]


def test_owner_export_changes_nothing(luminet: Run, write: Callable[..., str], tmp_path: Path) -> None:
    make_organisation("globex", "a")
    luminet("apply", "-f", write(MINE, owner="team-a"))
    luminet("apply", "-f", write({"acme": {"namespaces": {"theirs": None}}}, owner="team-b"))
    for owner, organisations in (("team-a", {"acme", "initech"}), ("team-b", {"acme"})):
        exported = luminet("export", "--owner", owner)[1]
        (tmp_path / "exported.yaml").write_text(exported)
        document = yaml.safe_load(exported)
        assert (document["owner"], set(document["organisations"])) == (owner, organisations)
        assert luminet("plan", "-f", str(tmp_path / "exported.yaml"), "--prune")[0] == 0


def test_too_many_deletions_are_refused_whole(luminet: Run, write: Callable[..., str]) -> None:
    many = {f"n{number:02}": None for number in range(11)}
    luminet("apply", "-f", write({"acme": {"name": "Acme", "namespaces": many}}, owner="team-a"))
    fewer = write({"acme": {"name": "Another", "namespaces": {}}}, owner="team-a")
    before, namespaces = head(), living()
    status, _, err = luminet("apply", "-f", fewer, "--prune", "--yes")
    assert (status, "deletes 11 organisations and namespaces, and --max-deletes allows 10" in err) == (1, True)
    assert (head(), living()) == (before, namespaces)
    assert luminet("apply", "-f", fewer, "--prune", "--yes", "--max-deletes", "11")[0] == 0
    assert living() == {"acme/default"}


def test_one_deletion_is_singular(luminet: Run, write: Callable[..., str]) -> None:
    luminet("apply", "-f", write({"initech": None}, owner="team-a"))
    out = luminet("plan", "-f", write({}, owner="team-a"), "--prune")[1]
    assert "delete the organisation and its 1 namespace\n" in out


# Reviewed plans


@pytest.fixture
def reviewed(luminet: Run, write: Callable[..., str], plan_file: Path) -> Path:
    """A plan that changes acme and deletes its namespace mail and the organisation initech."""
    luminet("apply", "-f", write(MINE, owner="team-a"))
    wanted = {"acme": {"policy": {"ttl_seconds": 60}, "namespaces": {"chat": {"policy": {"kv_dtype": "int8"}}}}}
    file = write(wanted, owner="team-a")
    assert luminet("plan", "-f", file, "--prune", "--out", str(plan_file))[0] == 2
    return plan_file


def test_reviewed_plan_is_applied_exactly(luminet: Run, reviewed: Path) -> None:
    assert stat.S_IMODE(reviewed.stat().st_mode) == 0o600
    status, out, _ = luminet("apply", str(reviewed), "--wait", "--json")
    assert status == 0
    done = json.loads(out)
    planned = json.loads(reviewed.read_text())["plan"]
    assert done["hash"] == planned["hash"]
    assert [one["place"] for one in done["changes"]] == [one["place"] for one in planned["changes"]]
    assert living() == {"acme/chat", "acme/default"}
    assert luminet("apply", str(reviewed))[0] == OUTDATED


def test_plan_file_replaces_readable_one(luminet: Run, reviewed: Path, write: Callable[..., str]) -> None:
    reviewed.chmod(0o644)
    luminet("plan", "-f", write(MINE, owner="team-a"), "--out", str(reviewed))
    assert stat.S_IMODE(reviewed.stat().st_mode) == 0o600
    assert luminet("apply", str(reviewed))[0] == 0  # nothing to change


def acme() -> Organisation:
    return Organisation.objects.get(slug="acme")


CHANGES: dict[str, tuple[Callable[[], Any], str]] = {
    "policy": (lambda: publish(Place(acme()), ttl_seconds=90), "acme: it was at revision 0 and is at revision 1"),
    "level above": (lambda: publish(Place(), ttl_seconds=500), "acme/chat: a level above it has changed"),
    "deleted contents": (
        lambda: publish(Place(acme(), acme().namespaces.get(slug="mail")), ttl_seconds=90),
        "acme/mail: something inside it has changed",
    ),
    "new contents": (
        lambda: namespace_create(actor=SYSTEM, organisation=Organisation.objects.get(slug="initech"), slug="new"),
        "initech: something inside it has changed",
    ),
    "label": (
        lambda: Namespace.objects.filter(slug="mail").update(owner="team-b"),
        "acme/mail: it would no longer delete the namespace",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_objects_outdate_a_plan(luminet: Run, reviewed: Path, name: str) -> None:
    change, words = CHANGES[name]
    change()
    before, namespaces = head(), living()
    status, _, err = luminet("apply", str(reviewed), "--yes")
    assert (status, words in err) == (OUTDATED, True), err
    assert (head(), living()) == (before, namespaces)


def edit_document(content: Any) -> None:
    content["request"]["document"]["organisations"]["acme"]["policy"]["ttl_seconds"] = 61


def edit_scope(content: Any) -> None:
    content["request"]["prune_organisations"] = ["acme"]


def edit_shown(content: Any) -> None:
    content["plan"]["changes"] = [one for one in content["plan"]["changes"] if one["verb"] != "organisation.delete"]


def edit_differences(content: Any) -> None:
    content["plan"]["changes"][0]["differences"][0]["after"] = 300


def edit_summary(content: Any) -> None:
    content["plan"]["summary"]["objects_deleted"] = 0


def edit_hash(content: Any) -> None:
    content["plan"]["hash"] = "0" * 64


@pytest.mark.parametrize("edit", [edit_document, edit_scope, edit_shown, edit_differences, edit_summary, edit_hash])
def test_edited_plans_are_refused(luminet: Run, reviewed: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(reviewed.read_text())
    edit(content)
    reviewed.write_text(json.dumps(content))
    before = head()
    status, _, err = luminet("apply", str(reviewed), "--yes")
    assert (status, "out of date" in err) == (OUTDATED, True)
    assert head() == before


def test_race_with_a_plan_is_named(luminet: Run, reviewed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody publishes between the last look at the plan and its application."""
    seen: list[bytes] = []

    def limit(*arguments: Any) -> None:
        publish(Place(acme()), ttl_seconds=90)
        seen.append(head())

    monkeypatch.setattr(configs, "_deletions_limit", limit)
    status, _, err = luminet("apply", str(reviewed))
    assert (status, "acme: it was at revision 0 and is at revision 1" in err) == (OUTDATED, True)
    assert [head()] == seen


def test_reviewed_deletions_keep_their_limit(luminet: Run, reviewed: Path) -> None:
    status, _, err = luminet("apply", str(reviewed), "--max-deletes", "2")
    assert (status, "deletes 3 organisations and namespaces" in err) == (1, True)
    assert luminet("apply", str(reviewed), "--max-deletes", "3")[0] == 0


def test_plan_arguments_exclude_each_other(luminet: Run, reviewed: Path, write: Callable[..., str]) -> None:
    file = write(MINE)
    for arguments in ([], [str(reviewed), "-f", file]):
        assert luminet("apply", *arguments)[0] == 1
    for option in (["--prune"], ["--org", "acme"], ["--take-ownership"]):
        status, _, err = luminet("apply", str(reviewed), *option)
        assert (status, "part of the plan" in err) == (1, True)


@pytest.mark.parametrize("content", ["version: 1\n", "{}", '{"format": "luminet plan 1"}', "[" * 100_000, "\xff"])
def test_other_files_are_no_plans(luminet: Run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(content, encoding="latin-1")
    status, _, err = luminet("apply", str(path))
    assert (status, "plan" in err, "Traceback" in err) == (1, True, False)
    assert luminet("apply", str(tmp_path / "missing.json"))[0] == 1


def test_unwritable_plan_is_a_sentence(luminet: Run, write: Callable[..., str], tmp_path: Path) -> None:
    status, _, err = luminet("plan", "-f", write(MINE), "--out", str(tmp_path / "nowhere" / "plan.json"))
    assert (status, "No such file" in err) == (1, True)
