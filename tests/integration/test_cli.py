"""The `luminet` command against a control plane that answers over a real socket."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_django.live_server_helper import LiveServer

from tenants.models import AuditRecord, Organisation, PolicyRevision
from tests.support.luminet_runs import Run, luminet_runner
from tests.web.api import make_key, make_organisation

pytestmark = pytest.mark.django_db(transaction=True)

POLICIES = """\
version: 1
organisations:
  acme:
    name: Acme Inc.
    policy: {ttl_seconds: 600}
    namespaces:
      default:
      chat:
        name: Support chat
        policy: &short
          ttl_seconds: 120
          kv_dtype: int8
      mail:
        policy: *short
"""


@pytest.fixture
def luminet(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return luminet_runner(live_server, monkeypatch, capsys)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "policies.yaml"
    path.write_text(POLICIES)
    return str(path)


def written(tmp_path: Path, document: Any, *, name: str = "written.yaml") -> str:
    path = tmp_path / name
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_from_an_empty_fleet_to_a_policy_rolled_back(luminet: Run, file: str, tmp_path: Path) -> None:
    status, out, _ = luminet("plan", "-f", file)
    assert status == 2
    assert "+ acme       create the organisation" in out
    assert "ttl_seconds: 600 → 120" in out
    assert out.endswith("3 to create, 3 to change, 0 to delete.\n")
    status, out, _ = luminet("apply", "-f", file, "--wait")
    assert status == 0
    assert out.endswith(": done\n")
    assert luminet("plan", "-f", file) == (0, "Nothing to change.\n", "")
    before = AuditRecord.objects.count()
    assert luminet("apply", "-f", file)[0] == 0
    assert AuditRecord.objects.count() == before

    document = yaml.safe_load(POLICIES)
    document["organisations"]["acme"]["namespaces"]["chat"]["policy"] = {"ttl_seconds": 9}
    assert luminet("apply", "-f", written(tmp_path, document))[0] == 0
    status, out, _ = luminet("get", "revisions", "acme/chat", "--json")
    assert [one["revision"] for one in json.loads(out)] == [2, 1]
    status, out, err = luminet("rollback", "acme/chat", "1", typed="acme/chat")
    assert (status, "ttl_seconds: 9 → 120" in out, "Type acme/chat" in err) == (0, True, True)
    status, out, _ = luminet("get", "effective", "acme/chat")
    assert status == 0
    assert ["ttl_seconds", "120", "namespace", "untested", "–"] in [line.split() for line in out.splitlines()]
    assert luminet("plan", "-f", file)[0] == 0


def test_what_is_exported_changes_nothing(luminet: Run, file: str, tmp_path: Path) -> None:
    luminet("apply", "-f", file)
    status, out, _ = luminet("export")
    assert status == 0
    assert list(yaml.safe_load(out)["organisations"]["acme"]["namespaces"]) == ["chat", "default", "mail"]
    (tmp_path / "exported.yaml").write_text(out)
    assert luminet("plan", "-f", str(tmp_path / "exported.yaml"), "--prune", "--org", "acme")[0] == 0
    assert luminet("export", "--org", "acme", "--json")[1].startswith("{")
    assert luminet("export", "--org", "globex")[0] == 1


def test_a_file_with_an_error_changes_nothing_and_every_error_is_said(luminet: Run, tmp_path: Path) -> None:
    document = yaml.safe_load(POLICIES)
    document["organisations"]["acme"]["namespaces"]["chat"]["policy"] = {"ttl_seconds": 0, "kv_dtype": "fp9"}
    for command in ("plan", "apply"):
        status, _, err = luminet(command, "-f", written(tmp_path, document))
        assert status == 1
        assert "organisations.acme.namespaces.chat.policy.ttl_seconds: " in err
        assert "organisations.acme.namespaces.chat.policy.kv_dtype: " in err
    document["organisations"]["acme"]["namespaces"]["chat"]["policy"] = {"reserved_share": 0.95}
    for command in ("plan", "apply"):
        status, _, err = luminet(command, "-f", written(tmp_path, document))
        assert status == 1
        assert "organisations.acme.namespaces.chat.policy.reserved_share: " in err
    assert not Organisation.objects.exists()


def test_deletions_want_their_name_or_their_number(luminet: Run, file: str, tmp_path: Path) -> None:
    both = yaml.safe_load(POLICIES)
    both["organisations"]["globex"] = {"name": "Globex", "namespaces": {"a": None, "b": None}}
    mine = written(tmp_path, {**yaml.safe_load(POLICIES), "owner": "team-a"}, name="mine.yaml")
    luminet("apply", "-f", written(tmp_path, {**both, "owner": "team-a"}))
    status, _, err = luminet("apply", "-f", mine, "--prune")
    assert (status, "say --yes" in err) == (1, True)
    status, _, err = luminet("apply", "-f", mine, "--prune", typed="no")
    assert (status, "nothing was changed" in err) == (1, True)
    assert Organisation.objects.filter(slug="globex", state="active").exists()
    assert luminet("apply", "-f", mine, "--prune", typed="globex")[0] == 0
    assert not Organisation.objects.filter(slug="globex", state="active").exists()
    fewer = {**yaml.safe_load(POLICIES), "owner": "team-a"}
    del fewer["organisations"]["acme"]["namespaces"]["chat"], fewer["organisations"]["acme"]["namespaces"]["mail"]
    assert luminet("apply", "-f", written(tmp_path, fewer), "--prune", typed="1")[0] == 1
    assert luminet("apply", "-f", written(tmp_path, fewer), "--prune", typed="2")[0] == 0
    luminet("apply", "-f", mine)
    assert luminet("apply", "-f", written(tmp_path, fewer), "--prune", "--yes")[0] == 0


def test_each_noun_is_shown_as_a_table_and_as_json(luminet: Run, file: str) -> None:
    luminet("apply", "-f", file)
    luminet("create", "member", "acme", "kim@acme.example", "--role", "viewer")
    luminet("create", "key", "acme", "ci", "--scope", "infer", "--namespace", "chat", "--expires", "30d")
    places = {"orgs": None, "audit": None, "groups": None, "namespace": "acme/chat", "pins": "acme/chat"}
    nouns = ("orgs", "org", "namespaces", "namespace", "policy", "effective", "revisions", "members", "keys", "pins")
    for noun in (*nouns, "bounds", "limits", "audit", "groups"):
        place = places.get(noun, "acme")
        arguments = ["get", noun, *([place] if place else [])]
        status, out, err = luminet(*arguments)
        assert (status, err) == (0, ""), (noun, err)
        assert out, noun
        status, out, _ = luminet(*arguments, "--json")
        assert (status, json.loads(out) is not None) == (0, True)
    assert "kim@acme.example  viewer  invited" in luminet("get", "members", "acme")[1]
    assert luminet("get", "policy")[1].endswith("What is in force: luminet get effective\n")
    assert "operator@luminet.example" in luminet("whoami")[1]


def test_lists_are_read_to_their_end(luminet: Run, tmp_path: Path) -> None:
    namespaces = {f"n{number:03}": None for number in range(450)}
    luminet("apply", "-f", written(tmp_path, {"version": 1, "organisations": {"acme": {"namespaces": namespaces}}}))
    assert len(json.loads(luminet("get", "namespaces", "acme", "--json")[1])) == 451
    assert len(luminet("get", "audit", "--limit", "3")[1].splitlines()) == 4


def test_a_secret_stands_alone_on_standard_output(luminet: Run) -> None:
    luminet("create", "org", "acme", "--name", "Acme Inc.")
    status, out, err = luminet("create", "key", "acme", "ci", "--scope", "policy:read", "--scope", "infer")
    assert (status, out[:4], len(out.split())) == (0, "lmk_", 1)
    assert "never again" in err
    status, out, err = luminet("create", "member", "acme", "kim@acme.example", "--role", "admin")
    assert (status, "/invitation/" in out, len(out.split())) == (0, True, 1)
    assert re.search(r"until [0-9-]{10} [0-9:]{8} UTC:", err)


def test_single_things_are_made_and_deleted(luminet: Run) -> None:
    assert luminet("create", "org", "acme")[0] == 0
    assert luminet("create", "group", "h200", "--name", "H200")[0] == 0
    assert luminet("create", "namespace", "acme/chat", "--group", "h200")[0] == 0
    luminet("create", "key", "acme", "ci", "--scope", "infer")
    luminet("create", "member", "acme", "kim@acme.example", "--role", "admin")
    assert luminet("delete", "key", "acme", "ci")[0] == 1
    assert luminet("delete", "key", "acme", "ci", typed="ci")[0] == 0
    assert luminet("delete", "key", "acme", "ci", "--yes")[0] == 1
    assert luminet("delete", "member", "acme", "kim@acme.example", "--yes")[0] == 0
    assert luminet("delete", "namespace", "acme/chat", typed="acme/chat")[0] == 0
    assert luminet("delete", "org", "acme", "--yes")[0] == 0
    assert json.loads(luminet("get", "orgs", "--json")[1]) == []


def test_a_purge_is_followed_to_its_end(luminet: Run) -> None:
    make_organisation("acme", "chat")
    assert luminet("purge", "acme/chat")[0] == 1
    status, out, _ = luminet("purge", "acme/chat", "--wait", "--yes", "--include-pins")
    assert (status, out.startswith("Purged: done")) == (0, True)
    operation = json.loads(luminet("purge", "acme", "--yes", "--json")[1])["operation"]
    assert json.loads(luminet("get", "operation", operation, "--json")[1])["scope"] == "acme"


def test_the_fleets_policy_is_rolled_back_too(luminet: Run, tmp_path: Path) -> None:
    luminet("apply", "-f", written(tmp_path, {"version": 1, "policy": {"ttl_seconds": 60}}))
    assert luminet("rollback", "fleet", "0", "--yes", "--note", "back")[0] == 0
    assert list(PolicyRevision.objects.values_list("number", "policy")) == [(1, {"ttl_seconds": 60}), (2, {})]
    status, _, err = luminet("rollback", "fleet", "9", "--yes")
    assert (status, "no such" in err) == (1, True)


def test_an_organisations_key_keeps_to_its_own(luminet: Run, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_TOKEN", make_key(make_organisation("globex")))
    status, _, err = luminet("plan", "-f", file)
    assert (status, "organisations.acme: there is no such organisation" in err) == (1, True)
    assert list(yaml.safe_load(luminet("export")[1])["organisations"]) == ["globex"]


def test_a_wrong_token_is_said_and_not_shown(luminet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_TOKEN", "lmo_nothing")
    status, _, err = luminet("whoami")
    assert (status, "(401)" in err, "lmo_nothing" in err) == (1, True, False)


def test_what_cannot_be_said_in_json_does_not_travel(luminet: Run, tmp_path: Path) -> None:
    path = tmp_path / "nan.yaml"
    path.write_text("version: 1\npolicy: {weight: .nan}\n")
    assert luminet("plan", "-f", str(path))[0] == 1


def test_the_schema_is_printed_as_json(luminet: Run) -> None:
    assert json.loads(luminet("schema")[1])["title"] == "Luminet configuration"
