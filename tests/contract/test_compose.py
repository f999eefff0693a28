"""What docker-compose.yml promises, checked without an engine.

Its images are in test_images.py; what holds of every such file is in test_compose_files.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from controlplane.commands import local
from controlplane.database.roles import OWNER_URL, SUPERUSER_URL, URL, login_of
from controlplane.settings.django import VISIBILITY_TIMEOUT_SECONDS
from controlplane.settings.env import read_environment
from controlplane.stack.credentials import environment_lines
from controlplane.web import edge
from engine_agent.backends.engine_config import engine_config
from engine_agent.gateway.command import parser as gateway_parser
from engine_agent.server.command import parser as engine_parser
from engine_agent.sidecar.command import parser as agent_parser
from engine_agent.sidecar.config import SidecarConfig
from tests.compose.files import (
    CHECKOUT,
    MissingVariable,
    compose_interpolated,
    compose_read,
    dockerfile_stages,
    image_environment,
    interpolate,
    seconds,
    variables_in,
)
from tests.support.luminet_command import understood

EXAMPLE = CHECKOUT / "deploy" / ".env.example"
BASE_URL = "https://luminet.example.com"
SECRETS = dict(line.split("=", 1) for line in environment_lines().splitlines())
VARIABLES = {**SECRETS, "LUMINET_BASE_URL": BASE_URL}
RAW = compose_read()
SERVICES: dict[str, dict[str, Any]] = compose_interpolated(VARIABLES)["services"]
CONTROL = [name for name, service in SERVICES.items() if service.get("build", {}).get("target") == "web"]
FLEET = [
    name for name, service in SERVICES.items() if service.get("build", {}).get("target") in ("sidecar", "agent", "vllm")
]
LASTING = [name for name, service in SERVICES.items() if service["restart"] != "no"]
STAGES = dockerfile_stages()
assert all((SERVICES, CONTROL, FLEET, LASTING)), "a loop over none of them would check nothing"
PARSERS = {"agent": agent_parser, "gateway": gateway_parser, "engine": engine_parser}
SIDECARS = {"agent": "engine", "agent-gpu": "engine-gpu", "agent-vllm": "engine-vllm"}  # and whose it is


def documented() -> tuple[dict[str, str], dict[str, str]]:
    """The variables of .env.example: those that must be set, and those that may be, with what they are otherwise."""
    assignments = re.findall(r"^(#?)([A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE)
    required = {name: value for comment, name, value in assignments if not comment}
    return required, {name: value for comment, name, value in assignments if comment}


def secrets_seen_by(service: dict[str, Any]) -> set[str]:
    seen = "\n".join(map(str, service.get("environment", {}).values()))
    return {name for name, secret in SECRETS.items() if secret in seen}


def test_what_has_no_default_is_a_secret_luminet_prints_or_documented_as_required() -> None:
    bare = {one.name for one in variables_in(RAW) if one.operator == ""}
    assert not bare, f"neither a default nor an error when missing: {bare}"
    required = {one.name for one in variables_in(RAW) if one.is_required}
    assert required == set(SECRETS) | set(documented()[0])


def test_every_optional_variable_is_documented_with_its_default() -> None:
    optional = {one.name: interpolate(one.argument, {}) for one in variables_in(RAW) if not one.is_required}
    assert documented()[1] == optional


def test_a_required_variable_that_is_missing_or_empty_is_an_error_naming_it(subtests: pytest.Subtests) -> None:
    values: list[str | None] = [None, ""]
    for name in sorted(VARIABLES):
        for value in values:
            with subtests.test(msg=f"{name}: {value!r}"):
                without = {key: one for key, one in VARIABLES.items() if key != name} | (
                    {name: value} if value is not None else {}
                )
                with pytest.raises(MissingVariable, match=rf"\b{name}\b.*\.env"):
                    compose_interpolated(without)


def test_no_secret_has_a_default() -> None:
    assert {one.name for one in variables_in(RAW) if one.name in SECRETS and one.operator != ":?"} == set()


def test_no_secret_is_written_into_the_file() -> None:
    for name, service in RAW["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"KEY|PASSWORD|PEPPER|TOKEN|AUTH|SECRET", variable):
                # Keys of before, and a webhook, are mostly none.
                assert re.fullmatch(r"\$\{[A-Z_]+:\?[^}]*\}|\$\{LUMINET_(PREVIOUS|AUDIT)_[A-Z_]+:-\}", value), (
                    f"{name}: {variable}"
                )
            if "://" in str(value):
                assert re.match(r"\$\{|[a-z]+://[a-z_]*:\$\{[A-Z_]+:\?[^}]*\}@", value), f"{name}: {variable}"


def test_each_service_sees_the_secrets_it_needs_and_no_other() -> None:
    joining, metrics = {"LUMINET_JOIN_TOKEN"}, {"LUMINET_METRICS_TOKEN"}
    grafana = {"GRAFANA_PASSWORD", "GRAFANA_SECRET_KEY"}
    superuser, owner = {"POSTGRES_PASSWORD"}, {"POSTGRES_OWNER_PASSWORD"}
    application = set(SECRETS) - metrics - joining - grafana - superuser - owner
    assert {name: secrets_seen_by(service) for name, service in SERVICES.items()} == {
        "postgres": superuser,
        "roles": superuser | owner | {"POSTGRES_APP_PASSWORD"},
        "redis": {"REDIS_PASSWORD"},
        "migrate": application | joining | owner,
        "web": application | metrics,
        "worker": application,
        "beat": application,
        "demo-traffic": application,
        "prometheus": metrics,
        "grafana": grafana,
        "gateway": joining | metrics,
        "broker": set(),
        **dict.fromkeys(SIDECARS, joining | metrics),
        **dict.fromkeys(SIDECARS.values(), metrics),
    }


def test_secrets_reach_a_service_by_its_environment_alone() -> None:
    for name, service in SERVICES.items():
        rest = str({key: value for key, value in service.items() if key != "environment"})
        assert not [secret for secret in SECRETS.values() if secret in rest], name


def test_nothing_starts_before_what_it_works_on() -> None:
    needs = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    assert needs == {
        "postgres": set(),
        "redis": set(),
        "roles": {"postgres"},
        "migrate": {"roles"},
        **{name: {"migrate", "redis"} for name in ("web", "worker", "beat", "demo-traffic")},
        **{name: {"web"} for name in ("gateway", *SIDECARS)},
        # Each engine after its sidecar, which writes the secret that it believes gateways by.
        **{engine: {sidecar} for sidecar, engine in SIDECARS.items()},
        "broker": {"redis"},
        "prometheus": set(),
        "grafana": {"prometheus"},
    }


def test_every_command_is_one_luminet_has(subtests: pytest.Subtests) -> None:
    for name in CONTROL:
        with subtests.test(msg=name):
            program, *arguments = SERVICES[name]["command"]
            assert (program, understood(arguments)["part"]) == ("luminet", name)


def test_what_keeps_running_is_asked_whether_it_works(subtests: pytest.Subtests) -> None:
    for name in LASTING:
        with subtests.test(msg=name):
            check = SERVICES[name]["healthcheck"]
            kind, program, *arguments = check["test"]
            assert kind in {"CMD", "CMD-SHELL"}
            assert seconds(check["start_interval"]) <= 1 < seconds(check["interval"]) <= 30
            if name in CONTROL:
                assert (kind, program, understood(arguments)["part"]) == ("CMD", "luminet", name)


def test_every_part_of_the_control_plane_runs() -> None:
    assert set(CONTROL) == set(local.PARTS)


def test_the_logins_of_the_database_are_three() -> None:
    given = SERVICES["roles"]["environment"]
    assert set(given) == {URL, OWNER_URL, SUPERUSER_URL}
    assert {name: login_of(url) for name, url in given.items()} == {
        URL: "luminet_app",
        OWNER_URL: "luminet_owner",
        SUPERUSER_URL: SERVICES["postgres"]["environment"]["POSTGRES_USER"],
    }
    assert {name for name, service in SERVICES.items() if OWNER_URL in service.get("environment", {})} == {
        *("roles", "migrate")
    }
    assert {service["environment"][URL] for name, service in SERVICES.items() if name in CONTROL} == {given[URL]}


def test_a_control_service_has_an_environment_the_settings_accept(subtests: pytest.Subtests) -> None:
    for name in [name for name in CONTROL if name != "roles"]:
        with subtests.test(msg=name):
            given = SERVICES[name]["environment"]
            read = read_environment({**image_environment(STAGES, "web"), **given})
            assert (read.base_url, read.static_root) == (BASE_URL, Path("/app/static"))
            # A name the settings do not know is a typo: whoever set it would wonder why nothing changes.
            known = set(re.findall(r"LUMINET_[A-Z_]+", (CHECKOUT / "controlplane" / "settings" / "env.py").read_text()))
            assert set(given) <= known


def test_web_gateway_and_grafana_alone_are_published_and_by_default_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.pop("broker") == ["0.0.0.0:6380:6380"]  # for other machines, with TLS, and a profile of its own
    assert published == {
        "web": ["127.0.0.1:8000:8000"],
        "gateway": ["127.0.0.1:8080:8080"],
        "grafana": ["127.0.0.1:3000:3000"],
    }
    elsewhere = compose_interpolated({**VARIABLES, "LUMINET_WEB_BIND": "0.0.0.0", "LUMINET_WEB_PORT": "80"})
    assert elsewhere["services"]["web"]["ports"] == ["0.0.0.0:80:8000"]


def test_web_listens_where_its_published_port_leads() -> None:
    environment = SERVICES["web"]["environment"]
    assert SERVICES["web"]["ports"][0].endswith(":" + environment["LUMINET_WEB_PORT"])
    assert environment["LUMINET_WEB_HOST"] == "0.0.0.0"


def test_the_stores_and_the_fleet_are_on_networks_without_a_way_in_or_out() -> None:
    networks = compose_interpolated(VARIABLES)["networks"]
    assert [name for name, network in networks.items() if (network or {}).get("internal")] == [
        *("fleet", "stores", "monitoring")
    ]
    assert {name: service["networks"] for name, service in SERVICES.items() if service["networks"] != ["stores"]} == {
        "web": ["edge", "stores", "fleet"],
        "worker": ["outside", "stores"],
        "redis": ["stores", "fleet"],
        "demo-traffic": ["stores", "fleet"],
        "gateway": ["door", "fleet"],
        "prometheus": {"fleet": {}, "asking": {}, "monitoring": {"aliases": ["prometheus-api"]}},
        "grafana": ["monitoring", "pictures"],
        "broker": ["remote", "fleet"],
        **{name: ["fleet"] for pair in SIDECARS.items() for name in pair},
    }


def test_what_runs_by_default_is_all_that_is_needed_and_each_profile_adds_what_it_says() -> None:
    by_profile: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        by_profile.setdefault(" ".join(service.get("profiles", [])), set()).add(name)
    assert by_profile.pop("") == {
        *("postgres", "redis", "roles", "migrate", "web", "worker", "beat", "gateway", "agent", "engine"),
    }
    assert by_profile == {
        "gpu": {"agent-gpu", "engine-gpu"},
        "vllm": {"agent-vllm", "engine-vllm"},
        "remote": {"broker"},
        "monitoring": {"prometheus", "grafana"},
        "demo": {"demo-traffic"},
    }


def test_the_agent_on_the_cpu_can_be_left_out_where_others_serve() -> None:
    without = compose_interpolated({**VARIABLES, "LUMINET_CPU_AGENT": "0"})["services"]
    assert {name for name, service in without.items() if service.get("scale", "1") == "0"} == {"agent", "engine"}


def test_an_engine_on_a_gpu_gets_one_and_starts_on_nothing_else(subtests: pytest.Subtests) -> None:
    for name in ("engine-gpu", "engine-vllm"):
        with subtests.test(msg=name):
            (device,) = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
            assert (device["driver"], device["device_ids"], device["capabilities"]) == ("nvidia", ["0"], ["gpu"])
            assert fleet_options(name).device == "cuda"
            assert "deploy" not in SERVICES["engine"]


def test_each_agent_has_a_name_of_its_own() -> None:
    names = [fleet_options(name).name for name in ("gateway", *SIDECARS)]
    assert sorted(set(names)) == sorted(names)


def test_vllm_is_asked_for_what_it_can_do() -> None:
    """As `luminet engine` reads it: whatever its backend would leave unheeded is an error."""
    config = engine_config(fleet_options("engine-vllm"), {})
    assert (config.backend, config.kv_dtype, config.settings.pool_bytes) == ("vllm", "bf16", 8 * 2**30)
    for engine in ("engine", "engine-gpu"):
        assert engine_config(fleet_options(engine), {}).backend == "paged"


def test_redis_lets_nobody_in_without_a_name() -> None:
    script = SERVICES["redis"]["command"][2]
    assert "user default off" in script.splitlines()
    assert script.count("\nuser ") == 2
    assert SERVICES["web"]["environment"]["LUMINET_REDIS_URL"].startswith("redis://luminet:")


def test_the_broker_for_other_machines_speaks_tls_to_them_and_to_redis_alone() -> None:
    broker, settings = SERVICES["broker"], (CHECKOUT / "deploy" / "broker" / "haproxy.cfg").read_text()
    said = broker["environment"]
    assert set(re.findall(r"\$\{([A-Z_]+)\}", settings)) == set(said)
    assert [line.split()[1:] for line in settings.splitlines() if line.strip().startswith("bind ")] == [
        ['"${BROKER_LISTEN}"', "ssl", "crt", '"${BROKER_CERTIFICATE}"'],
        ['"${BROKER_HEALTH}"'],
    ]
    assert said["BROKER_LISTEN"].rpartition(":")[2] == broker["ports"][0].rpartition(":")[2]
    assert said["BROKER_HEALTH"].startswith("127.0.0.1:")
    assert said["BROKER_HEALTH"] in broker["healthcheck"]["test"][-1]
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in broker["volumes"]}
    assert mounted[said["BROKER_CERTIFICATE"]] == "./tls/broker.pem"
    assert mounted[said["BROKER_CERTIFICATE"] + ".key"] == "./tls/broker.key"


def test_the_control_plane_tells_agents_of_that_broker_and_those_here_have_another_way() -> None:
    told = compose_interpolated({**VARIABLES, "LUMINET_AGENT_REDIS_URL": "rediss://broker.example.com:6380/0"})
    for name in {*CONTROL} - {"roles"}:
        environment = {**image_environment(STAGES, "web"), **told["services"][name]["environment"]}
        assert (
            read_environment(environment).agent_redis_url == "rediss://broker.example.com:6380/0?ssl_cert_reqs=required"
        )
    assert {fleet_options(name).broker for name in ("gateway", *SIDECARS)} == {"redis://redis:6379/0"}


def test_webhooks_leave_by_the_worker_to_whom_operators_named() -> None:
    """The web judges a URL when a rule is made, the worker at each send: both by the same list."""
    named = compose_interpolated({**VARIABLES, "LUMINET_WEBHOOK_HOSTS": "pager.internal"})
    ways_out = {name for name, network in named["networks"].items() if not (network or {}).get("internal")}
    assert ways_out & set(named["services"]["worker"]["networks"]) == {"outside"}
    assert [name for name, service in named["services"].items() if "outside" in service["networks"]] == ["worker"]
    for name in ("web", "worker"):
        read = read_environment({**image_environment(STAGES, "web"), **named["services"][name]["environment"]})
        assert read.webhook_hosts == ("pager.internal",)


def test_the_gateway_is_not_on_the_network_whose_proxies_the_web_believes() -> None:
    """Who sends requests of anybody's must not be able to say of itself who it is."""
    assert [name for name, service in SERVICES.items() if "edge" in service["networks"]] == ["web"]


def fleet_options(name: str) -> Any:
    program, door, *arguments = SERVICES[name]["command"]
    assert (program, door) == ("luminet", name.partition("-")[0])
    understood([door, *arguments])
    return PARSERS[door]().parse_args(arguments)


def test_every_command_of_the_fleet_is_one_its_door_takes(subtests: pytest.Subtests) -> None:
    for name in FLEET:
        with subtests.test(msg=name):
            assert fleet_options(name).json_logs


def test_sidecar_and_gateway_join_the_web_by_its_own_name_alone() -> None:
    for name in ("gateway", *SIDECARS):
        options = fleet_options(name)
        assert (options.join, options.plain_http_host) == ("http://web:8000", ["web"])
        assert options.token is None  # it comes by the environment, which is not everybody's to read


def test_a_sidecar_and_its_engine_share_a_folder_a_name_and_a_secret(subtests: pytest.Subtests) -> None:
    for name, its_engine in SIDECARS.items():
        with subtests.test(msg=name):
            sidecar, engine = fleet_options(name), fleet_options(its_engine)
            assert sidecar.engine_state == engine.state == Path("/state")
            assert sidecar.name == engine.agent_id
            assert engine.identity_secret_file == [Path("/state/identity-secret")]
            assert sidecar.address == f"http://{its_engine}:{engine.port}"
            assert all(f"{its_engine}:/state" in SERVICES[one]["volumes"] for one in (name, its_engine))


def test_web_believes_its_network_or_whom_it_is_told_to() -> None:
    def trusted(**more: str) -> str:
        environment = compose_interpolated({**VARIABLES, **more})["services"]["web"]["environment"]
        return str(environment["LUMINET_TRUSTED_PROXIES"])

    network = compose_interpolated(VARIABLES)["networks"]["edge"]["ipam"]["config"][0]["subnet"]
    assert trusted() == network
    assert trusted(LUMINET_EDGE_SUBNET="10.9.0.0/28") == "10.9.0.0/28"
    assert trusted(LUMINET_TRUSTED_PROXIES="10.0.0.7") == "10.0.0.7"


def test_every_service_has_the_least_it_can_work_with(subtests: pytest.Subtests) -> None:
    for name in SERVICES:
        with subtests.test(msg=name):
            service = SERVICES[name]
            assert service["cap_drop"] == ["ALL"]
            assert "no-new-privileges:true" in service["security_opt"]
            assert (service["read_only"], service["init"]) == (True, True)
            assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
            assert service["mem_limit"]
            assert service["pids_limit"]
            assert service["logging"]["options"]["max-size"]
            assert service["restart"] in {"no", "unless-stopped"}
            user = service.get("user") or STAGES[service["build"]["target"]].all("USER")[-1]
            assert int(user.partition(":")[0]) > 0
            assert not any("docker.sock" in volume for volume in service.get("volumes", ()))


def test_the_database_and_who_joined_outlive_their_containers_and_nothing_else_does() -> None:
    kept = {name: service["volumes"] for name, service in SERVICES.items() if "volumes" in service}
    assert all(volume.endswith(":ro") for volume in kept.pop("broker"))
    assert kept == {
        "postgres": ["postgres:/var/lib/postgresql"],
        "worker": ["audit:/audit"],
        "gateway": ["gateway:/agent"],
        **{name: [f"{name}:/agent", f"{engine}:/state"] for name, engine in SIDECARS.items()},
        **{engine: ["./engine_agent/demo/model:/model:ro", f"{engine}:/state"] for engine in SIDECARS.values()},
        "prometheus": ["./deploy/prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
        "grafana": [
            "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
            "./deploy/grafana/luminet.json:/etc/grafana/dashboards/luminet.json:ro",
            "grafana:/var/lib/grafana",
        ],
    }


def test_who_is_told_to_stop_gets_the_time_it_takes() -> None:
    assert seconds(SERVICES["web"]["stop_grace_period"]) > 2 * edge.GRACE_SECONDS
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > VISIBILITY_TIMEOUT_SECONDS
    for name in ("gateway", *SIDECARS.values()):
        assert seconds(SERVICES[name]["stop_grace_period"]) > fleet_options(name).drain_seconds
    for name in SIDECARS:
        assert seconds(SERVICES[name]["stop_grace_period"]) > SidecarConfig(Path("/agent")).stop_seconds


def test_our_reading_of_variables_is_composes(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("$$HOME", "$HOME"),
        ("a$A-${A}", "a1-1"),
        ("${B:-${A:-2}}", "1"),
        ("${EMPTY:-x}${EMPTY-y}", "x"),
        ("${A:+set}${B+set}", "set"),
        ("${A:?why}", "1"),
    ]
    for text, expected in cases:
        with subtests.test(msg=text):
            assert interpolate(text, {"A": "1", "EMPTY": ""}) == expected


def test_the_example_is_no_place_for_secrets() -> None:
    required, optional = documented()
    assert not (set(required) | set(optional)) & set(SECRETS)
