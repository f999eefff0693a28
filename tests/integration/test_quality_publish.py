"""`luminet quality --publish` sends a run to a real control plane, which lets formats through by it."""

import pytest
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models import QualityResult
from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality.artefact import load_artefact
from engine_agent.tools.quality.command import main
from engine_agent.tools.quality.publishing import publish, publishing_checked
from tests.database.factories import make_operator
from tests.fleet.rollouts import SHIPPED
from tests.web.api import make_key, make_operator_token, make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
ARTEFACT = load_artefact(SHIPPED.parent, backend="torch-cpu")


def test_a_run_is_stored_under_the_name_it_is_served_under_and_once(live_server: LiveServer) -> None:
    token = make_operator_token(make_operator())
    told = [publish(ARTEFACT, "my-model", url=live_server.url, token=token) for _ in range(2)]
    assert told[0] == told[1]
    assert {"int8 passed", "fp8_e4m3 unresolved"} <= {*told[0]}
    stored = QualityResult.objects.filter(model="my-model", revision=ARTEFACT.model_revision)
    assert stored.count() == len(told[0])


def test_who_is_no_operator_reads_why_it_is_refused(live_server: LiveServer) -> None:
    token = make_key(make_organisation("acme"))
    with pytest.raises(ToolError, match="403: Only operators"):
        publish(ARTEFACT, "my-model", url=live_server.url, token=token)
    assert not QualityResult.objects.exists()


def test_where_nobody_listens_it_says_so() -> None:
    with pytest.raises(ToolError, match=r"http://127\.0\.0\.1:9"):
        publish(ARTEFACT, "my-model", url="http://127.0.0.1:9", token="lmo_x")


@pytest.mark.parametrize(
    ("is_quick", "environ", "words"),
    [
        (True, {"LUMINET_URL": "https://luminet.example", "LUMINET_TOKEN": "lmo_x"}, "quick run decides nothing"),
        (False, {"LUMINET_TOKEN": "lmo_x"}, "LUMINET_URL"),
        (False, {"LUMINET_URL": "file:///etc/passwd", "LUMINET_TOKEN": "lmo_x"}, "LUMINET_URL"),
        (False, {"LUMINET_URL": "https://luminet.example"}, "LUMINET_TOKEN"),
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_is_measured(
    is_quick: bool, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        publishing_checked(is_quick, environ)


def test_the_command_refuses_it_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LUMINET_URL", raising=False)
    assert main(["--publish", "my-model"]) == 1
    assert "LUMINET_URL" in capsys.readouterr().err
