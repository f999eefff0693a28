"""The demo's seed: everything in its file works, and a second start takes nothing and brings nothing back."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.demo.seed import OPERATOR_EMAIL, demo_write
from controlplane.fleet.join_tokens import join_token_spend
from controlplane.fleet.models import Agent, JoinToken, QualityResult
from controlplane.fleet.quality import results_read, served_by
from controlplane.stack.config import StackConfig, folders_make, join_token_file, read_stack_config
from controlplane.stack.demo_home import demo_home
from tenants.access import actor_for_token
from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.levels import FLEET, level_of
from tenants.limits import Limits
from tenants.models import ApiKey, AuditRecord, Member, OperatorToken, Organisation, PolicyRevision, User
from tenants.services.keys import key_revoke
from tenants.services.namespaces import default_group
from tenants.services.organisations import limits_put, organisation_create, organisation_delete, remains_remove
from tenants.services.people import password_change
from tests.database.factories import make_user, publish
from tests.web.api import REST_SCOPES, Api

pytestmark = pytest.mark.django_db
SLUGS = ["acme", "globex", "initech"]


@pytest.fixture
def config(tmp_path: Path) -> StackConfig:
    config = read_stack_config({"LUMINET_HOME": str(tmp_path / "home")})
    config.home.mkdir()
    folders_make(config)
    return config


def seed(config: StackConfig) -> dict[str, Any]:
    demo_write(demo_home(config))
    demo: dict[str, Any] = json.loads(config.demo_file.read_text())
    return demo


def rows() -> dict[str, int]:
    """How much there is of everything a seed writes."""
    models = (User, Member, Organisation, ApiKey, OperatorToken, PolicyRevision, AuditRecord)
    return {model.__name__: model.objects.count() for model in models}


def scopes_of(secret: str) -> set[str]:
    return set(actor_for_token(secret, now=timezone.now(), address="", request_id="").scopes)


def signs_in(email: str, password: str) -> bool:
    return Client().post("/sign-in", {"email": email, "password": password}).status_code == 302


def test_everybody_in_the_file_can_sign_in_and_every_token_does_what_it_says(config: StackConfig) -> None:
    demo = seed(config)
    assert demo["operator"]["email"] == OPERATOR_EMAIL
    assert signs_in(OPERATOR_EMAIL, demo["operator"]["password"])
    assert scopes_of(demo["operator"]["token"]) == set(REST_SCOPES)
    assert [org["slug"] for org in demo["orgs"]] == SLUGS
    for org in demo["orgs"]:
        assert set(org) == {"slug", "api_key", "token", "member"}
        assert signs_in(org["member"]["email"], org["member"]["password"])
        assert scopes_of(org["api_key"]) == {"infer"}
        assert scopes_of(org["token"]) == set(REST_SCOPES)


def test_the_file_keeps_its_shape_and_is_for_its_owner_only(config: StackConfig) -> None:
    demo = seed(config)
    assert set(demo) == {"web", "gateway", "operator", "orgs"}
    assert set(demo["operator"]) == {"email", "password", "token"}
    for file in (config.demo_file, config.run / "demo-proofs.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_three_organisations_differ_in_what_they_ask_for(config: StackConfig) -> None:
    api = Api(seed(config)["operator"]["token"], Client())
    namespaces = {slug: json.loads(api.get(f"/orgs/{slug}/namespaces").content)["items"] for slug in SLUGS}
    assert [len(found) for found in namespaces.values()] == [3, 4, 3]
    policies = set()
    for slug, found in namespaces.items():
        for namespace in found:
            answer = api.get(f"/orgs/{slug}/namespaces/{namespace['slug']}/policy/effective")
            policies.add(json.loads(answer.content)["effective_hash"])
    assert len(policies) >= 9
    assert all(revision.note for revision in PolicyRevision.objects.all())


def test_members_are_admins_who_joined_as_people_do(config: StackConfig) -> None:
    demo = seed(config)
    members = Member.objects.select_related("organisation", "user")
    found = {one.organisation.slug: (one.role, one.email, one.user and one.user.email) for one in members}
    wanted = {org["slug"]: ("admin", org["member"]["email"], org["member"]["email"]) for org in demo["orgs"]}
    assert found == wanted


def test_everything_it_did_stands_in_the_audit_trail(config: StackConfig) -> None:
    seed(config)
    verdict = audit_verify()
    assert verdict.is_sound
    assert verdict.records == AuditRecord.objects.count() > 30
    assert set(AuditRecord.objects.values_list("actor_kind", flat=True)) == {"system", "visitor"}


def test_a_second_start_changes_nothing(config: StackConfig) -> None:
    first = seed(config)
    before = rows()
    assert [seed(config), seed(config)] == [first, first]
    assert rows() == before


def test_a_second_start_asks_little_and_no_slow_hash(
    config: StackConfig, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = seed(config)
    monkeypatch.setattr(User, "check_password", lambda *_: pytest.fail("scrypt at every start"))
    with django_assert_max_num_queries(31):
        assert seed(config) == first


def test_a_lost_list_of_proofs_costs_time_and_nothing_else(config: StackConfig) -> None:
    first = seed(config)
    (config.run / "demo-proofs.json").unlink()
    assert seed(config) == first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"operator": null, "orgs": null}',
        '{"operator": {"password": 7, "token": "\\ud800"}}',
        '{"orgs": [7, {}, {"slug": "acme", "member": 7, "token": []}]}',
    ],
)
def test_a_spoiled_file_costs_the_passwords_and_new_keys_replace_those_nobody_knows(
    config: StackConfig, text: str
) -> None:
    first = seed(config)
    before = rows()
    config.demo_file.write_text(text)
    demo = seed(config)
    assert demo["operator"]["password"] is None
    assert [org["member"]["password"] for org in demo["orgs"]] == [None] * 3
    assert scopes_of(demo["operator"]["token"]) == set(REST_SCOPES)
    assert scopes_of(demo["orgs"][0]["api_key"]) == {"infer"}
    assert demo["orgs"][0]["token"] != first["orgs"][0]["token"]
    assert ApiKey.objects.filter(revoked_at=None).count() == before["ApiKey"] == 6
    assert OperatorToken.objects.filter(revoked_at=None).count() == 1
    assert rows()["User"] == before["User"]


def test_a_password_its_owner_changed_is_never_written_down(config: StackConfig) -> None:
    demo = seed(config)
    for email, password in (
        (OPERATOR_EMAIL, demo["operator"]["password"]),
        (demo["orgs"][1]["member"]["email"], demo["orgs"][1]["member"]["password"]),
    ):
        password_change(user=User.objects.get(email=email), current=password, new="something of my own")
    for again in (seed(config), seed(config)):
        assert again["operator"]["password"] is None
        assert [org["member"]["password"] is None for org in again["orgs"]] == [False, True, False]
    assert "something of my own" not in config.demo_file.read_text()


def test_a_key_that_was_revoked_is_replaced_and_keys_of_others_are_left_alone(config: StackConfig) -> None:
    demo = seed(config)
    acme = Api(demo["orgs"][0]["token"], Client())
    own = json.loads(acme.post("/orgs/acme/keys", {"name": "demo, for inference", "scopes": ["infer"]}).content)
    key_revoke(
        actor=SYSTEM, key=ApiKey.objects.select_related("organisation").get(prefix=demo["orgs"][0]["api_key"][:12])
    )
    again = seed(config)
    assert again["orgs"][0]["api_key"] != demo["orgs"][0]["api_key"]
    assert scopes_of(again["orgs"][0]["api_key"]) == {"infer"}
    assert again["orgs"][0]["token"] == demo["orgs"][0]["token"]
    assert scopes_of(own["secret"]) == {"infer"}


def test_what_was_deleted_stays_deleted(config: StackConfig) -> None:
    seed(config)
    organisation_delete(actor=SYSTEM, organisation=Organisation.objects.get(slug="globex"), expected=None)
    assert [org["slug"] for org in seed(config)["orgs"]] == ["acme", "initech"]
    for slug in ("acme", "initech"):
        organisation_delete(actor=SYSTEM, organisation=Organisation.objects.get(slug=slug), expected=None)
    remains_remove()
    assert seed(config)["orgs"] == []
    assert not Organisation.objects.exists()


def test_an_organisation_somebody_else_made_under_the_same_name_gets_no_keys(config: StackConfig) -> None:
    seed(config)
    organisation_delete(actor=SYSTEM, organisation=Organisation.objects.get(slug="acme"), expected=None)
    theirs = organisation_create(actor=SYSTEM, slug="acme", name="Another Acme")
    assert [org["slug"] for org in seed(config)["orgs"]] == ["globex", "initech"]
    assert not theirs.api_keys.exists()


def test_where_there_are_organisations_the_demo_adds_none(config: StackConfig) -> None:
    organisation_create(actor=SYSTEM, slug="real", name="A real customer")
    demo = seed(config)
    assert demo["orgs"] == []
    assert demo["operator"]["token"]
    assert Organisation.objects.count() == 1


def test_a_member_who_was_removed_is_not_named_and_not_brought_back(config: StackConfig) -> None:
    seed(config)
    Member.objects.filter(organisation__slug="acme").delete()
    assert seed(config)["orgs"][0]["member"] == {"email": None, "password": None}
    assert Member.objects.count() == 2


def test_an_account_that_exists_already_is_invited_and_keeps_its_password(config: StackConfig) -> None:
    make_user(email="admin@acme.example")
    demo = seed(config)
    assert demo["orgs"][0]["member"] == {"email": "admin@acme.example", "password": None}
    assert not Member.objects.get(email="admin@acme.example").has_joined


def test_an_operator_whose_account_was_closed_gets_no_new_token(config: StackConfig) -> None:
    seed(config)
    User.objects.filter(email=OPERATOR_EMAIL).update(is_active=False)
    assert seed(config)["operator"] == {"email": OPERATOR_EMAIL, "password": None, "token": None}


def test_an_organisation_without_room_for_keys_does_not_stop_the_start(config: StackConfig) -> None:
    seed(config)
    acme = Organisation.objects.get(slug="acme")
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(max_keys=0), expected=None)
    config.demo_file.unlink()
    assert seed(config)["orgs"][0]["api_key"] is None


def test_a_start_that_dies_before_the_commit_leaves_nothing_half_seeded(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("controlplane.demo.seed.bounds_put", dies)  # in the middle of the second organisation
        with pytest.raises(KeyboardInterrupt):
            seed(config)
    assert not any(rows().values())
    assert [org["slug"] for org in seed(config)["orgs"]] == SLUGS


MEMBERS = {"agent-1": "agent-1", "agent-2": "agent-2", "gateway-1": "gateway"}


def join_tokens(config: StackConfig) -> dict[str, str]:
    """By whom they are for, as they lie in the home."""
    return {name: join_token_file(config.home / folder).read_text().strip() for name, folder in MEMBERS.items()}


def test_every_member_of_the_fleet_gets_in_once_and_under_its_own_name_alone(config: StackConfig) -> None:
    assert seed(config)["gateway"] == config.gateway_url
    for name, secret in join_tokens(config).items():
        token = join_token_spend(secret, now=timezone.now())
        assert (token.agent, token.uses_left) == (name, 0)
        assert stat.S_IMODE(join_token_file(config.home / MEMBERS[name]).stat().st_mode) == 0o600


def test_a_token_that_still_opens_is_kept_and_one_that_does_not_is_replaced(config: StackConfig) -> None:
    seed(config)
    first = join_tokens(config)
    seed(config)
    assert join_tokens(config) == first
    join_token_spend(first["agent-1"], now=timezone.now())
    seed(config)
    assert {name for name, secret in join_tokens(config).items() if secret != first[name]} == {"agent-1"}


def test_who_has_joined_needs_no_token_and_who_was_taken_out_gets_none(config: StackConfig) -> None:
    """Who lost its credentials becomes the same agent again; who was revoked stays out."""
    for name, folder in MEMBERS.items():
        is_out = name == "agent-2"
        Agent.objects.create(
            id=name,
            kind="gateway" if name == "gateway-1" else "engine",
            group=default_group(),
            token_hash=name.encode().ljust(32, b"."),
            revoked_at=timezone.now() if is_out else None,
        )
        if name == "gateway-1":
            (config.home / folder).mkdir()
            (config.home / folder / "credentials").touch()
    seed(config)
    assert {one.agent for one in JoinToken.objects.all()} == {"agent-1"}


def test_no_fleet_no_tokens_and_no_address(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    config = read_stack_config({"LUMINET_HOME": str(home), "LUMINET_RUN_ENGINE": "no"})
    folders_make(config)
    assert seed(config)["gateway"] is None
    assert not JoinToken.objects.exists()


def test_the_demos_model_may_be_served_in_the_formats_that_passed(config: StackConfig) -> None:
    seed(config)
    seed(config)
    found = QualityResult.objects.filter(model="luminet-demo", kv_dtype="fp8")
    assert [one.verdict for one in found] == ["passed"], "stored once"


def with_vllm(config: StackConfig) -> StackConfig:
    return replace(config, backends=("paged", "vllm"))


def test_with_vllm_the_fleet_keeps_the_format_that_both_backends_may_serve(config: StackConfig) -> None:
    seed(config)
    assert level_of(FLEET).revision == 0
    seed(with_vllm(config))
    seed(with_vllm(config))
    level = level_of(FLEET)
    assert (level.revision, level.policy["kv_dtype"]) == (1, "bf16")
    model = {"name": "luminet-demo", "revision": "r", "kv_dtypes": ["bf16"], "context_tokens": 2048}
    for backend in ("paged", "vllm"):
        (served,) = served_by("agent", {"backend": backend, "models": [model]})
        assert results_read().may_serve(served, level.policy["kv_dtype"])


def test_what_was_published_for_the_fleet_stays_when_vllm_joins(config: StackConfig) -> None:
    publish(FLEET, ttl_seconds=60)
    seed(with_vllm(config))
    assert (level_of(FLEET).revision, level_of(FLEET).policy) == (1, {"ttl_seconds": 60})


def test_prices_of_the_demo_are_examples_and_say_so(config: StackConfig) -> None:
    api = Api(seed(config)["operator"]["token"], Client())
    found = json.loads(api.get("/prices").content)
    assert [(one["model"], one["is_example"]) for one in found["prices"]] == [("luminet-demo", True)]
    assert (found["revision"], found["is_example"]) == (1, True)
    assert found["prices"][0]["valid_from"] == str(timezone.now().date())


@pytest.mark.parametrize("theirs", [[], [{"valid_from": "2036-01-01", "input": 1, "cached_input": 1, "output": 1}]])
def test_whoever_writes_prices_never_gets_the_examples_back(config: StackConfig, theirs: list[Any]) -> None:
    api = Api(seed(config)["operator"]["token"], Client())
    assert api.put("/prices", {"currency": "USD", "prices": theirs}, seen=1).status_code == 200
    seed(config)
    found = json.loads(api.get("/prices").content)
    assert (found["revision"], len(found["prices"]), found["is_example"]) == (2, len(theirs), False)


def test_prices_that_are_there_before_the_demo_are_left_alone(config: StackConfig, operator: Api) -> None:
    api = Api(operator.token, Client())
    one = {"valid_from": "2036-01-01", "input": 1, "cached_input": 1, "output": 1}
    api.put("/prices", {"currency": "USD", "prices": [one]}, seen=0)
    seed(config)
    assert json.loads(api.get("/prices").content)["revision"] == 1
