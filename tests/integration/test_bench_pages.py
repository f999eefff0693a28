"""What row W1 asks every page of is stored as the product stores it. Here with little, so that the bench cannot rot."""

from typing import Any

import pytest

from controlplane.alerts.models import Alert
from controlplane.analytics.selectors import Scope
from controlplane.analytics.stats import stats_answer
from controlplane.rollouts.models import Rollout
from tests.bench import lived_in, page_asking, tenants
from tests.bench.page_weights import TAGS, _named, _within
from tests.database.factories import make_operator
from tests.web.dashboard_pages import PAGES

pytestmark = pytest.mark.django_db
# Links that are spent, and nothing to remove.
REFUSALS = {"invitation": 404, "reset": 404, "settings-price-remove": 302}
UNCHANGED = 286  # by which a part says that it need not be asked again


@pytest.fixture
def filled(db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(tenants, "ORGANISATIONS", 4)
    monkeypatch.setattr(tenants, "NAMESPACES", 24)
    monkeypatch.setattr(tenants, "BIG_NAMESPACES", 9)
    few = {"DAYS": 0, "OVER": 8, "FIRING": 6, "OPEN": 2, "ENDED": 3, "REVISIONS": 3, "PINS": 2, "POOL_MINUTES": 3}
    for name, value in {**few, "EVERY_MINUTES": 2}.items():
        monkeypatch.setattr(lived_in, name, value)
    make_operator()
    return lived_in.fill()


def test_every_page_is_asked_by_all_whom_it_is_for_and_none_is_left_out(filled: dict[str, Any]) -> None:
    asked = page_asking.asks(filled["named"])
    assert {one.name.partition(",")[0] for one in asked} == {one.view for one in PAGES if one.kind != "deed"}
    assert {one.who for one in asked if one.name.startswith("alerts,")} == {"operator", "customer"}
    costs = page_asking.measure(filled["named"], 1)
    assert set(costs) == {one.name for one in asked}
    wrong = {
        name: found[0]["status"]
        for name, found in costs.items()
        if found[0]["status"] not in (200, UNCHANGED, REFUSALS.get(name))
    }
    assert wrong == {}
    assert all(found[0]["queries"] for name, found in costs.items() if name != "sign-in")


def test_what_is_stored_is_counted(filled: dict[str, Any]) -> None:
    assert filled["is_sound"] is True
    assert filled["rows"] > 0
    stats = stats_answer(Scope(None), "24h")
    assert stats["requests"] > 0
    assert stats["prompt_tokens"] == stats["cached_tokens"] + sum(stats["missed_tokens_by_reason"].values())
    assert Alert.objects.filter(state="firing").count() == 6
    assert Rollout.objects.filter(state__in=Rollout.OPEN).count() == 2


def test_a_first_paint_is_the_document_with_all_that_it_imports() -> None:
    page = (
        b'<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/a.css">'
        b'<script src="/static/live.js" type="module"></script><script src="https://elsewhere.example/x.js"></script>'
    )
    assert len(TAGS.findall(page)) == 4
    assert list(_named("/", page)) == ["/static/a.css", "/static/live.js"]
    assert list(_within("/static/live.js", b'import { ageText } from "./time.js";')) == ["/static/time.js"]
    assert list(_within("/static/small.js", b'"from"===o[0]&&o.from"&&o[0]==="x"')) == []
    assert list(_within("/static/a.css", b"src: url('font.woff2#x')")) == ["/static/font.woff2"]
