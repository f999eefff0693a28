"""What docker-compose.yml, its Dockerfile and .dockerignore promise, checked without an engine."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane import cli, serve
from controlplane.settings.django import VISIBILITY_TIMEOUT_SECONDS
from controlplane.settings.env import read_environment
from controlplane.stack.credentials import environment_lines
from engine_agent.gateway.command import parser as gateway_parser
from engine_agent.server.command import parser as engine_parser
from engine_agent.sidecar.command import parser as agent_parser
from engine_agent.sidecar.config import SidecarConfig
from tests.compose import (
    CHECKOUT,
    COMPOSE_FILE,
    MissingVariable,
    compose_interpolated,
    compose_read,
    dockerfile_stages,
    ignore_patterns,
    image_environment,
    interpolate,
    is_ignored,
    seconds,
    stage_lineage,
    variables_in,
)

EXAMPLE = CHECKOUT / "deploy" / ".env.example"
BASE_URL = "https://luminet.example.com"
SECRETS = dict(line.split("=", 1) for line in environment_lines().splitlines())
VARIABLES = {**SECRETS, "LUMINET_BASE_URL": BASE_URL}
RAW = compose_read()
SERVICES: dict[str, dict[str, Any]] = compose_interpolated(VARIABLES)["services"]
CONTROL = [name for name, service in SERVICES.items() if service.get("build", {}).get("target") == "web"]
FLEET = [name for name, service in SERVICES.items() if service.get("build", {}).get("target") in ("agent", "engine")]
LASTING = [name for name, service in SERVICES.items() if service["restart"] != "no"]
STAGES = dockerfile_stages()
FLEET_STAGES = dockerfile_stages(CHECKOUT / "deploy" / "Dockerfile.engine")
PARSERS = {"agent": agent_parser, "gateway": gateway_parser, "engine": engine_parser}
# What the base image brings, and what the build itself installs before it is called.
PROGRAMS = {"env", "groupadd", "pip", "python", "useradd", "luminet"}


def documented() -> tuple[dict[str, str], dict[str, str]]:
    """The variables of .env.example: those that must be set, and those that may be, with what they are otherwise."""
    assignments = re.findall(r"^(#?)([A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE)
    required = {name: value for comment, name, value in assignments if not comment}
    return required, {name: value for comment, name, value in assignments if comment}


def shell_commands(line: str) -> list[list[str]]:
    """The commands a line of shell consists of, those in $(…) included."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in words:
        if word in {"&&", "||", "|", ";", "(", ")"}:
            commands.append([])
        else:
            commands[-1].append(word)
    # What follows a $(…) goes on with the command before it, and begins with a variable here.
    return [command for command in commands if command and "=" not in command[0]]


def secrets_seen_by(service: dict[str, Any]) -> set[str]:
    seen = "\n".join(map(str, service.get("environment", {}).values()))
    return {name for name, secret in SECRETS.items() if secret in seen}


def test_the_file_fits_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_has_no_default_is_a_secret_luminet_prints_or_documented_as_required() -> None:
    bare = {one.name for one in variables_in(RAW) if one.operator == ""}
    assert not bare, f"neither a default nor an error when missing: {bare}"
    required = {one.name for one in variables_in(RAW) if one.is_required}
    assert required == set(SECRETS) | set(documented()[0])


def test_every_optional_variable_is_documented_with_its_default() -> None:
    optional = {one.name: interpolate(one.argument, {}) for one in variables_in(RAW) if not one.is_required}
    assert documented()[1] == optional


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_a_required_variable_that_is_missing_or_empty_is_an_error_naming_it(name: str, value: str | None) -> None:
    without = {key: one for key, one in VARIABLES.items() if key != name} | ({name: value} if value is not None else {})
    with pytest.raises(MissingVariable, match=rf"\b{name}\b.*\.env"):
        compose_interpolated(without)


def test_no_secret_has_a_default() -> None:
    assert {one.name for one in variables_in(RAW) if one.name in SECRETS and one.operator != ":?"} == set()


def test_no_secret_is_written_into_the_file() -> None:
    for name, service in RAW["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"KEY|PASSWORD|PEPPER|TOKEN|AUTH|SECRET", variable):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?[^}]*\}", value), f"{name}: {variable}"
            if "://" in str(value):
                assert re.match(r"\$\{|[a-z]+://[a-z]*:\$\{[A-Z_]+:\?[^}]*\}@", value), f"{name}: {variable}"


def test_each_service_sees_the_secrets_it_needs_and_no_other() -> None:
    joining, metrics = {"LUMINET_JOIN_TOKEN"}, {"LUMINET_METRICS_TOKEN"}
    grafana = {"GRAFANA_PASSWORD", "GRAFANA_SECRET_KEY"}
    application = set(SECRETS) - metrics - joining - grafana
    assert {name: secrets_seen_by(service) for name, service in SERVICES.items()} == {
        "postgres": {"POSTGRES_PASSWORD"},
        "redis": {"REDIS_PASSWORD"},
        "migrate": application | joining,
        "web": application | metrics,
        "worker": application,
        "beat": application,
        "demo-traffic": application,
        "gateway": joining | metrics,
        "agent": joining | metrics,
        "engine": metrics,
        "prometheus": metrics,
        "grafana": grafana,
    }


def test_secrets_reach_a_service_by_its_environment_alone() -> None:
    for name, service in SERVICES.items():
        rest = str({key: value for key, value in service.items() if key != "environment"})
        assert not [secret for secret in SECRETS.values() if secret in rest], name


def test_every_dependency_exists_and_can_meet_its_condition() -> None:
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            match how["condition"]:
                case "service_healthy":
                    assert "healthcheck" in SERVICES[needed], f"{name} waits for {needed} to become healthy"
                case "service_completed_successfully":
                    assert SERVICES[needed]["restart"] == "no", f"{name} waits for {needed} to end"
                case condition:
                    pytest.fail(f"{name} waits for {needed}: {condition}")


def test_nothing_starts_before_what_it_works_on() -> None:
    needs = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    assert needs == {
        "postgres": set(),
        "redis": set(),
        "migrate": {"postgres"},
        **{name: {"migrate", "redis"} for name in ("web", "worker", "beat", "demo-traffic")},
        **{name: {"web"} for name in ("gateway", "agent")},
        "prometheus": set(),
        "grafana": {"prometheus"},
        "engine": {"agent"},  # which writes the secret that it believes gateways by
    }


@pytest.mark.parametrize("name", CONTROL)
def test_every_command_is_one_luminet_has(name: str) -> None:
    program, *arguments = SERVICES[name]["command"]
    assert (program, cli.parser().parse_args(arguments).part) == ("luminet", name)


@pytest.mark.parametrize("name", LASTING)
def test_what_keeps_running_is_asked_whether_it_works(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    kind, program, *arguments = check["test"]
    assert kind in {"CMD", "CMD-SHELL"}
    assert seconds(check["start_interval"]) <= 1 < seconds(check["interval"]) <= 30
    if name in CONTROL:
        assert (kind, program, cli.parser().parse_args(arguments).part) == ("CMD", "luminet", name)


def test_every_part_of_the_control_plane_runs() -> None:
    assert set(CONTROL) == set(cli.PARTS)


@pytest.mark.parametrize("name", CONTROL)
def test_a_control_service_has_an_environment_the_settings_accept(name: str) -> None:
    given = SERVICES[name]["environment"]
    read = read_environment({**image_environment(STAGES, "web"), **given})
    assert (read.base_url, read.static_root) == (BASE_URL, Path("/app/static"))
    # A name the settings do not know is a typo: whoever set it would wonder why nothing changes.
    known = set(re.findall(r"LUMINET_[A-Z_]+", (CHECKOUT / "controlplane" / "settings" / "env.py").read_text()))
    assert set(given) <= known


def test_web_gateway_and_grafana_alone_are_published_and_by_default_on_loopback() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
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
        "prometheus": {"fleet": {}, "monitoring": {"aliases": ["prometheus-api"]}},
        "grafana": ["monitoring", "pictures"],
        "agent": ["fleet"],
        "engine": ["fleet"],
    }


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
    assert (program, door) == ("luminet", name)
    cli.parser().parse_args([door, *arguments])
    return PARSERS[name]().parse_args(arguments)


@pytest.mark.parametrize("name", FLEET)
def test_every_command_of_the_fleet_is_one_its_door_takes(name: str) -> None:
    assert fleet_options(name).json_logs


def test_sidecar_and_gateway_join_the_web_by_its_own_name_alone() -> None:
    for name in ("agent", "gateway"):
        options = fleet_options(name)
        assert (options.join, options.plain_http_host) == ("http://web:8000", ["web"])
        assert options.token is None  # it comes by the environment, which is not everybody's to read


def test_a_sidecar_and_its_engine_share_a_folder_a_name_and_a_secret() -> None:
    sidecar, engine = fleet_options("agent"), fleet_options("engine")
    assert sidecar.engine_state == engine.state == Path("/state")
    assert sidecar.name == engine.agent_id
    assert engine.identity_secret_file == [Path("/state/identity-secret")]
    assert sidecar.address == f"http://engine:{engine.port}"
    shared = [set(SERVICES[name]["volumes"]) & {"engine:/state"} for name in ("agent", "engine")]
    assert all(shared)


def test_who_shares_a_volume_is_the_same_user_in_both_images() -> None:
    users = {FLEET_STAGES[target].all("USER")[-1] for target in ("agent", "engine")}
    assert users == {"10001:10001"}
    for target, folders in (("agent", ["/agent", "/state"]), ("engine", ["/state"])):
        made = next(line for line in FLEET_STAGES[target].all("RUN") if "install --directory" in line)
        assert "--mode 0700" in made
        assert all(folder in made for folder in folders)


def test_web_believes_its_network_or_whom_it_is_told_to() -> None:
    def trusted(**more: str) -> str:
        environment = compose_interpolated({**VARIABLES, **more})["services"]["web"]["environment"]
        return str(environment["LUMINET_TRUSTED_PROXIES"])

    network = compose_interpolated(VARIABLES)["networks"]["edge"]["ipam"]["config"][0]["subnet"]
    assert trusted() == network
    assert trusted(LUMINET_EDGE_SUBNET="10.9.0.0/28") == "10.9.0.0/28"
    assert trusted(LUMINET_TRUSTED_PROXIES="10.0.0.7") == "10.0.0.7"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_the_least_it_can_work_with(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert (service["read_only"], service["init"]) == (True, True)
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["logging"]["options"]["max-size"]
    assert service["restart"] in {"no", "unless-stopped"}
    user = service.get("user") or {**STAGES, **FLEET_STAGES}[service["build"]["target"]].all("USER")[-1]
    assert int(user.partition(":")[0]) > 0
    assert not any("docker.sock" in volume for volume in service.get("volumes", ()))


def test_the_database_and_who_joined_outlive_their_containers_and_nothing_else_does() -> None:
    kept = {name: service["volumes"] for name, service in SERVICES.items() if "volumes" in service}
    assert kept == {
        "postgres": ["postgres:/var/lib/postgresql"],
        "gateway": ["gateway:/agent"],
        "agent": ["agent:/agent", "engine:/state"],
        "engine": ["./engine_agent/demo/model:/model:ro", "engine:/state"],
        "prometheus": ["./deploy/prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
        "grafana": [
            "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
            "./deploy/grafana/luminet.json:/etc/grafana/dashboards/luminet.json:ro",
            "grafana:/var/lib/grafana",
        ],
    }
    assert set(RAW["volumes"]) == {"postgres", "gateway", "agent", "engine", "prometheus", "grafana"}


def test_who_is_told_to_stop_gets_the_time_it_takes() -> None:
    assert seconds(SERVICES["web"]["stop_grace_period"]) > 2 * serve.GRACE_SECONDS
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > VISIBILITY_TIMEOUT_SECONDS
    for name in ("gateway", "engine"):
        assert seconds(SERVICES[name]["stop_grace_period"]) > fleet_options(name).drain_seconds
    assert seconds(SERVICES["agent"]["stop_grace_period"]) > SidecarConfig(Path("/agent")).stop_seconds


def test_images_carry_a_tag() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    for stages in (STAGES, FLEET_STAGES):
        images += [stage.base for stage in stages.values() if stage.base not in stages]
    for image in images:
        assert re.fullmatch(r"[a-z/]+:v?\d[\w.-]*", image), image


def test_compose_builds_stages_the_dockerfile_has() -> None:
    for name in [*CONTROL, *FLEET]:
        build = SERVICES[name]["build"]
        assert build["target"] in dockerfile_stages(CHECKOUT / build["context"] / build["dockerfile"])


def test_the_image_runs_as_a_fixed_user_without_a_name_to_guess() -> None:
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", STAGES["web"].all("USER")[-1])
    assert STAGES["web"].instructions[-1] == ("CMD", '["luminet", "run", "web"]')


def test_every_copied_source_exists_and_reaches_the_build() -> None:
    patterns = ignore_patterns()
    for stage in STAGES.values():
        for *sources, _ in map(shlex.split, stage.all("COPY")):
            if sources[0].startswith("--from="):
                assert sources.pop(0).removeprefix("--from=") in STAGES
                continue
            for source in sources:
                assert (CHECKOUT / source).exists(), source
                assert not is_ignored(source, patterns), source


def test_every_package_and_file_the_application_needs_is_copied() -> None:
    copied = {source for line in STAGES["build"].all("COPY") for source in line.split()[:-1]}
    packages = {str(init.parent.relative_to(CHECKOUT)) for init in CHECKOUT.glob("*/__init__.py")} - {"tests"}
    assert packages | {"templates", "manage.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} == copied


def test_the_build_calls_nothing_that_is_not_there() -> None:
    for stage in STAGES.values():
        for command in (command for line in stage.all("RUN") for command in shell_commands(line)):
            assert command[0] in PROGRAMS, command
            if command[0] == "luminet":
                cli.parser().parse_args(command[1:])  # SystemExit where there is no such command


def test_the_image_keeps_no_secret_and_no_throwaway_one_either() -> None:
    for stage in stage_lineage(STAGES, "web"):
        for word in ("ENV", "ARG", "LABEL"):
            assert not [line for line in stage.all(word) if any(name in line for name in VARIABLES)]
    assert not set(image_environment(STAGES, "web")) - {"PATH", "PYTHONUNBUFFERED", "LUMINET_STATIC_ROOT"}


def test_the_build_installs_the_control_plane_alone_and_pinned() -> None:
    installs = [line for line in STAGES["build"].all("RUN") if "pip " in line and " install " in line]
    assert [line for line in installs if "['control']" in line and "--constraint constraints.txt" in line]
    assert all("--constraint constraints.txt" in line or "--no-deps" in line for line in installs)
    assert not [line for line in installs if re.search(r"embedded|engine|vllm|torch|dev\b", line)]


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".git/config",
        ".luminet/secrets/master_key",
        ".venv/bin/python",
        ".mypy_cache/3.11/x.json",
        "tests/settings.py",
        "deploy/.env",
        "controlplane/.env.local",
        "controlplane/stack/__pycache__/lock.cpython-311.pyc",
        "a-file-nobody-has-thought-of.pem",
    ],
)
def test_secrets_state_and_caches_stay_out_of_the_build(path: str) -> None:
    assert is_ignored(path, ignore_patterns())


@pytest.mark.parametrize("path", ["controlplane/stack/lock.py", "templates/base.html", "pyproject.toml"])
def test_sources_reach_the_build(path: str) -> None:
    assert not is_ignored(path, ignore_patterns())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$$HOME", "$HOME"),
        ("a$A-${A}", "a1-1"),
        ("${B:-${A:-2}}", "1"),
        ("${EMPTY:-x}${EMPTY-y}", "x"),
        ("${A:+set}${B+set}", "set"),
        ("${A:?why}", "1"),
    ],
)
def test_our_reading_of_variables_is_composes(text: str, expected: str) -> None:
    assert interpolate(text, {"A": "1", "EMPTY": ""}) == expected


def test_the_example_is_no_place_for_secrets() -> None:
    required, optional = documented()
    assert not (set(required) | set(optional)) & set(SECRETS)
