import base64
from pathlib import Path

import pytest

from controlplane.database.roles import RolesProblem, owner_instead
from controlplane.settings.env import read_environment, read_environment_or_exit
from controlplane.settings.reader import MalformedSettings
from controlplane.stack.config import read_stack_config
from controlplane.stack.fleet_services import engine_service
from tests.support.case_names import case_name

KEY = base64.b64encode(bytes(range(32))).decode()
GOOD = {
    "LUMINET_BASE_URL": "https://luminet.example",
    "LUMINET_DATABASE_URL": "postgresql://luminet:hush-hush@db:5432/luminet",
    "LUMINET_REDIS_URL": "redis://:hush-hush@redis:6379/0",
    "LUMINET_SECRET_KEY": "s" * 50,
    "LUMINET_MASTER_KEY": KEY,
    "LUMINET_SIGNING_KEY": KEY,
    "LUMINET_PEPPER": KEY,
}


def bad_names(changes: dict[str, str]) -> list[str]:
    with pytest.raises(MalformedSettings) as caught:
        read_environment({**GOOD, **changes})
    return [one.name for one in caught.value.bad]


def test_a_good_environment_is_read_whole() -> None:
    environment = read_environment(
        {**GOOD, "LUMINET_ALLOWED_HOSTS": "a.example, b.example", "LUMINET_WEB_PORT": "9000"}
    )
    assert environment.allowed_hosts == ("luminet.example", "a.example", "b.example")
    assert (environment.web_port, environment.is_https, environment.secrets.pepper) == (9000, True, bytes(range(32)))


@pytest.mark.parametrize(
    ("base_url", "hosts", "origins"),
    [
        ("https://luminet.example", "", ["https://luminet.example"]),
        ("https://Luminet.example:443/", "", ["https://luminet.example"]),
        (
            "https://luminet.example:8443",
            "A.example,luminet.example",
            ["https://luminet.example:8443", "https://a.example:8443"],
        ),
        ("http://[::1]:8000", "localhost", ["http://[::1]:8000", "http://localhost:8000"]),
        ("http://localhost:80", "", ["http://localhost"]),
    ],
)
def test_origins_are_spelled_as_browsers_spell_them(base_url: str, hosts: str, origins: list[str]) -> None:
    environment = read_environment({**GOOD, "LUMINET_BASE_URL": base_url, "LUMINET_ALLOWED_HOSTS": hosts})
    assert list(environment.origins) == origins


def test_one_message_names_every_missing_variable() -> None:
    with pytest.raises(MalformedSettings) as caught:
        read_environment({})
    for name in GOOD:
        assert name in str(caught.value)


def test_a_malformed_value_is_named(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("LUMINET_BASE_URL", "http://luminet.example"),  # http beyond loopback
        ("LUMINET_BASE_URL", "https://luminet.example/path"),
        ("LUMINET_BASE_URL", "https://[::1"),
        ("LUMINET_BASE_URL", "luminet.example"),
        ("LUMINET_DATABASE_URL", "mysql://db/luminet"),
        ("LUMINET_REDIS_URL", "redis://"),
        ("LUMINET_REDIS_URL", "redis://host:port/0"),
        ("LUMINET_DATABASE_URL", "postgresql://luminet@db"),  # no database named
        ("LUMINET_TRUSTED_PROXIES", "10.0.0.0/33"),
        ("LUMINET_TRUSTED_PROXIES", "127.0.0.1, my-proxy"),
        ("LUMINET_WEBHOOK_HOSTS", "https://pager.internal"),
        ("LUMINET_WEBHOOK_HOSTS", "pager.internal, *"),
        ("LUMINET_ALLOWED_HOSTS", "*"),
        ("LUMINET_ALLOWED_HOSTS", "*.luminet.example"),
        ("LUMINET_ALLOWED_HOSTS", ".luminet.example"),
        ("LUMINET_ALLOWED_HOSTS", "https://luminet.example"),
        ("LUMINET_SECRET_KEY", "short"),
        ("LUMINET_MASTER_KEY", "not base64!"),
        ("LUMINET_PEPPER", base64.b64encode(b"31 bytes are not quite enough..").decode()),
        ("LUMINET_WEB_PORT", "0"),
        ("LUMINET_WEB_PORT", "65536"),
        ("LUMINET_WEB_PORT", "-1"),
        ("LUMINET_WEB_PORT", "٨٠٠٠"),  # digits, but not ours
        ("LUMINET_WEB_PORT", "9" * 5000),
        ("LUMINET_WEB_WORKERS", "many"),
        ("LUMINET_LOG_FORMAT", "xml"),
        ("LUMINET_LOG_LEVEL", "loud"),
    ]
    for name, value in cases:
        with subtests.test(msg=case_name(name, value)):
            assert bad_names({name: value}) == [name]


def test_loopback_may_go_without_tls() -> None:
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
        assert not read_environment({**GOOD, "LUMINET_BASE_URL": f"http://{host}"}).is_https


def test_all_mistakes_are_told_together() -> None:
    assert bad_names({"LUMINET_WEB_PORT": "x", "LUMINET_LOG_LEVEL": "y", "LUMINET_PEPPER": ""}) == [
        "LUMINET_PEPPER",
        "LUMINET_WEB_PORT",
        "LUMINET_LOG_LEVEL",
    ]


def test_a_mistake_ends_with_status_two_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_environment_or_exit({**GOOD, "LUMINET_LOG_LEVEL": "loud"})
    assert caught.value.code == 2
    assert "LUMINET_LOG_LEVEL: 'loud' is none of DEBUG" in capsys.readouterr().err


def test_neither_messages_nor_representations_show_secrets() -> None:
    with pytest.raises(MalformedSettings) as caught:
        read_environment(
            {**GOOD, "LUMINET_DATABASE_URL": "mysql://luminet:hush-hush@db/x", "LUMINET_SECRET_KEY": "hush"}
        )
    assert "hush" not in str(caught.value)
    shown = repr(read_environment({**GOOD, "LUMINET_METRICS_TOKEN": "hush-token"}))
    assert "hush" not in shown
    assert GOOD["LUMINET_SECRET_KEY"] not in shown


def test_secrets_may_lie_in_files_and_the_variable_wins(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("f" * 60 + "\n")
    environ = {**GOOD, "LUMINET_SECRETS_DIR": str(tmp_path)}
    assert read_environment(environ).secrets.secret_key == "s" * 50
    del environ["LUMINET_SECRET_KEY"]
    assert read_environment(environ).secrets.secret_key == "f" * 60


def test_a_secret_file_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret_key"
    file.write_text("f" * 60)
    file.chmod(0o666)
    assert bad_names({"LUMINET_SECRETS_DIR": str(tmp_path), "LUMINET_SECRET_KEY": ""}) == ["LUMINET_SECRET_KEY"]


def test_an_ipv6_host_is_allowed_the_way_browsers_spell_it() -> None:
    environment = read_environment({**GOOD, "LUMINET_BASE_URL": "http://[::1]:8000"})
    assert environment.allowed_hosts[0] == "[::1]"


def test_the_stack_has_defaults_for_everything() -> None:
    config = read_stack_config({})
    assert (config.web_host, config.web_port, config.database_url, config.installs_engine) == (
        "127.0.0.1",
        8000,
        None,
        True,
    )


def test_the_stack_names_its_malformed_settings_too() -> None:
    with pytest.raises(MalformedSettings) as caught:
        read_stack_config({"LUMINET_WEB_PORT": "eighty", "LUMINET_INSTALL_ENGINE": "perhaps", "LUMINET_REDIS_URL": "x"})
    assert {one.name for one in caught.value.bad} == {"LUMINET_WEB_PORT", "LUMINET_INSTALL_ENGINE", "LUMINET_REDIS_URL"}


def test_each_of_the_stacks_agents_has_a_backend() -> None:
    assert [one.backend for one in read_stack_config({}).agents] == ["paged", "paged"]
    mixed = read_stack_config({"LUMINET_BACKENDS": "paged, vllm", "LUMINET_ENGINE_PORT": "9000"})
    assert [(one.name, one.port, one.backend) for one in mixed.agents] == [
        ("agent-1", 9000, "paged"),
        ("agent-2", 9001, "vllm"),
    ]


@pytest.mark.parametrize("said", ["vllm", "paged,paged,vllm", "paged,sglang"])
def test_backends_that_the_stack_cannot_have_are_named(said: str) -> None:
    with pytest.raises(MalformedSettings) as caught:
        read_stack_config({"LUMINET_BACKENDS": said})
    assert [one.name for one in caught.value.bad] == ["LUMINET_BACKENDS"]
    assert said in str(caught.value)


def test_an_agent_of_vllm_has_its_engine_started_with_it() -> None:
    config = read_stack_config({"LUMINET_BACKENDS": "paged,vllm"})
    ours, vllms = (engine_service(places, after=()).command for places in config.agents)
    assert "--backend" not in ours
    assert vllms[vllms.index("--backend") :] == ("--backend", "vllm", "--kv-dtype", "bf16")


def test_one_web_process_keeps_its_metrics_in_memory_and_several_share_a_folder() -> None:
    """A mapped file on a full disk kills the process that writes to it."""
    shared = {**GOOD, "LUMINET_METRICS_DIR": "/somewhere"}
    assert read_environment(shared).shared_metrics_dir is None
    assert bad_names({"LUMINET_WEB_WORKERS": "2"}) == ["LUMINET_METRICS_DIR"]
    assert read_environment({**shared, "LUMINET_WEB_WORKERS": "2"}).shared_metrics_dir == Path("/somewhere")


def test_agents_reach_the_broker_as_we_do_unless_told_otherwise() -> None:
    assert read_environment(GOOD).agent_redis_url is None
    elsewhere = {"LUMINET_AGENT_REDIS_URL": "rediss://broker.example.com:6380/0"}
    assert read_environment({**GOOD, **elsewhere}).agent_redis_url == (
        "rediss://broker.example.com:6380/0?ssl_cert_reqs=required"
    )


@pytest.mark.parametrize("name", ["LUMINET_REDIS_URL", "LUMINET_AGENT_REDIS_URL"])
def test_a_brokers_certificate_is_looked_at_unless_somebody_says_not_to(name: str) -> None:
    def read(url: str) -> str | None:
        environment = read_environment({**GOOD, name: url})
        return environment.redis_url if name == "LUMINET_REDIS_URL" else environment.agent_redis_url

    assert read("rediss://broker/0?ssl_check_hostname=false") == (
        "rediss://broker/0?ssl_check_hostname=false&ssl_cert_reqs=required"
    )
    for said in ("rediss://broker/0?ssl_cert_reqs=none", "redis://broker/0"):
        assert read(said) == said


WITH_A_LOGIN = ["redis://:secret@broker:6379/0", "redis://agent@broker", "redis://broker:6379/0?password=secret"]


@pytest.mark.parametrize("url", [*WITH_A_LOGIN, "http://broker", "redis://"])
def test_the_address_agents_are_given_has_no_login_in_it(url: str) -> None:
    with pytest.raises(MalformedSettings) as refused:
        read_environment({**GOOD, "LUMINET_AGENT_REDIS_URL": url})
    assert [one.name for one in refused.value.bad] == ["LUMINET_AGENT_REDIS_URL"]
    assert "secret" not in str(refused.value)


def test_a_join_token_may_come_along_in_the_environment_or_in_a_file(tmp_path: Path) -> None:
    token = "ljt_" + "a" * 49
    assert read_environment(GOOD).join_token is None
    assert read_environment({**GOOD, "LUMINET_JOIN_TOKEN": token}).join_token == token
    (tmp_path / "join_token").write_text(token + "\n")
    assert read_environment({**GOOD, "LUMINET_SECRETS_DIR": str(tmp_path)}).join_token == token
    assert token not in repr(read_environment({**GOOD, "LUMINET_JOIN_TOKEN": token}))


OWNER = "postgresql://luminet_owner:hush-hush@db:5432/luminet"


def test_the_owners_url_is_another_login_of_the_same_database() -> None:
    assert read_environment(GOOD).database_owner_url is None
    assert read_environment({**GOOD, "LUMINET_DATABASE_OWNER_URL": OWNER}).database_owner_url == OWNER
    for wrong in (GOOD["LUMINET_DATABASE_URL"], f"{OWNER}_2", OWNER.removesuffix("/luminet"), "http://db/luminet"):
        assert bad_names({"LUMINET_DATABASE_OWNER_URL": wrong}) == ["LUMINET_DATABASE_OWNER_URL"]


def test_the_owner_is_taken_for_one_process() -> None:
    environ = {**GOOD, "LUMINET_DATABASE_OWNER_URL": OWNER}
    assert owner_instead(environ) == "luminet"
    assert environ == {**GOOD, "LUMINET_DATABASE_URL": OWNER}
    assert owner_instead(environ) is None


def test_an_application_without_a_login_is_refused() -> None:
    environ = {**GOOD, "LUMINET_DATABASE_URL": "postgresql:///luminet?host=/run/postgresql"}
    assert owner_instead(dict(environ)) is None
    environ["LUMINET_DATABASE_OWNER_URL"] = OWNER
    before = dict(environ)
    with pytest.raises(RolesProblem, match="LUMINET_DATABASE_URL: names no login: write it before the host"):
        owner_instead(environ)
    assert environ == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LUMINET_AUDIT_ANCHOR_FILE", "anchors.jsonl"),
        ("LUMINET_AUDIT_ANCHOR_SYSLOG", "tcp://log:601"),
        ("LUMINET_AUDIT_ANCHOR_SYSLOG", "udp://"),
        ("LUMINET_AUDIT_ANCHOR_SYSLOG", "unix:"),
    ],
)
def test_a_malformed_anchor_sink_is_named(name: str, value: str) -> None:
    assert bad_names({name: value}) == [name]


def test_an_anchor_webhook_wants_a_secret() -> None:
    webhook = {"LUMINET_AUDIT_ANCHOR_WEBHOOK": "https://log.example/anchors"}
    assert bad_names(webhook) == ["LUMINET_AUDIT_ANCHOR_WEBHOOK_SECRET"]
    read = read_environment({**GOOD, **webhook, "LUMINET_AUDIT_ANCHOR_WEBHOOK_SECRET": "of the receiver, long"})
    assert read.anchors.webhook == webhook["LUMINET_AUDIT_ANCHOR_WEBHOOK"]


@pytest.mark.parametrize("token", ["ljt_short", "lmk_" + "a" * 49, "ljt_" + "é" * 49, "x"])
def test_what_is_no_join_token_is_named(token: str) -> None:
    with pytest.raises(MalformedSettings, match="LUMINET_JOIN_TOKEN: is no join token"):
        read_environment({**GOOD, "LUMINET_JOIN_TOKEN": token})
