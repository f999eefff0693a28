import re
from pathlib import Path
from typing import Any

from controlplane.settings.env import CHECKOUT
from controlplane.stack.welcome import welcome


def org(slug: str, password: str | None) -> dict[str, Any]:
    member = {"email": f"admin@{slug}.example", "password": password}
    return {"slug": slug, "api_key": "lmk_1", "token": "lmk_2", "member": member}


def told(*orgs: dict[str, Any], password: str | None = "secret-1", gateway: str | None = None) -> str:
    operator = {"email": "operator@luminet.example", "password": password, "token": "lmo_1"}
    demo = {"web": "http://127.0.0.1:8000", "gateway": gateway, "operator": operator, "orgs": list(orgs)}
    home = CHECKOUT / ".luminet"
    return "\n".join(welcome(demo, demo_file=home / "demo.json", logs=home / "logs"))


def test_a_newcomer_learns_how_to_sign_in_as_both_and_where_programs_begin() -> None:
    text = told(org("acme", "secret-2"), org("globex", "secret-3"), org("initech", "secret-4"))
    assert text.splitlines() == [
        "  sign in     operator@luminet.example",
        "  password    secret-1",
        "  customer    admin@acme.example (organisation acme; also globex and initech)",
        "  password    secret-2",
        "  REST API    http://127.0.0.1:8000/api/v1/docs, tokens in .luminet/demo.json",
        "  details     .luminet/demo.json (for programs), .luminet/logs (logs)",
        "  status      .venv/bin/luminet stack status",
        "  stop        Ctrl-C here, or `make down`",
    ]


def test_where_requests_go_is_said_where_a_gateway_runs() -> None:
    line = "  OpenAI API  http://127.0.0.1:8080/v1, keys (api_key) in .luminet/demo.json"
    assert line in told(org("acme", "secret-2"), gateway="http://127.0.0.1:8080").splitlines()
    assert "OpenAI" not in told(org("acme", "secret-2"))


def test_no_token_is_printed() -> None:
    assert not re.search("lm[ko]_", told(org("acme", "secret-2"), gateway="http://127.0.0.1:8080"))


def test_only_a_customer_whose_password_is_known_is_named() -> None:
    assert "admin@globex.example (organisation globex)" in told(org("acme", None), org("globex", "secret-3"))
    assert "customer" not in told(org("acme", None))
    assert "customer" not in told()


def test_a_password_its_owner_changed_is_not_known() -> None:
    assert "password    the one you chose" in told(password=None)


def test_a_home_elsewhere_is_shown_whole() -> None:
    demo: dict[str, Any] = {"web": "", "gateway": None, "operator": {"email": "", "password": None}, "orgs": []}
    assert "/elsewhere/demo.json" in "\n".join(welcome(demo, demo_file=Path("/elsewhere/demo.json"), logs=Path("/l")))
