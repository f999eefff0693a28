"""What row T1 measures is made as the services would have made it. Here with few, so that the bench cannot rot."""

import pytest

from engine_agent.contracts.protocol import AgentKind
from tenants.models import ApiKey, Namespace, NamespaceKey, PolicyLevel
from tenants.policy import Policy, contradictions
from tests.bench import snapshots, tenants
from tests.database.factories import make_operator

pytestmark = pytest.mark.django_db


@pytest.fixture
def filled(db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(tenants, "ORGANISATIONS", 4)
    monkeypatch.setattr(tenants, "NAMESPACES", 24)
    monkeypatch.setattr(tenants, "BIG_NAMESPACES", 9)
    make_operator()
    return tenants.fill()


def test_the_filler_leaves_a_sound_trail_and_whole_rows(filled: dict[str, object]) -> None:
    assert filled["is_sound"] is True
    assert Namespace.objects.count() == 24
    assert Namespace.objects.filter(slug="default").count() == 4
    assert NamespaceKey.objects.count() == 24
    assert PolicyLevel.objects.count() == 24 + 4 + 1
    assert ApiKey.objects.count() == 300 + 3 * tenants.KEYS_EACH


def test_what_the_filler_publishes_could_have_been_published() -> None:
    for number in range(200):
        chain = [tenants.organisation_policy(number), tenants.namespace_policy(number)]
        for policy in chain:
            assert Policy(**policy).said() == policy
        assert not list(contradictions(chain))


@pytest.mark.parametrize("kind", ["engine", "gateway"])
def test_snapshots_are_measured_built_and_kept_current(filled: dict[str, object], kind: AgentKind) -> None:
    found = snapshots.measure(kind, repetitions=2)
    assert found["namespaces"] == 24
    assert {len(found[name]) for name in ("build", "encode", "one_publish", "big_publish", "nothing")} == {2}
