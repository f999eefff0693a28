"""What the compose files for other machines promise, without Docker: an agent of a fleet, and an engine alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine_agent.backends.engine_config import engine_config
from engine_agent.server.command import parser as engine_parser
from engine_agent.sidecar.command import AgentOptions, _engine_command, _read
from engine_agent.sidecar.command import parser as agent_parser
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.engine_child import STOP_SECONDS
from tests.compose.files import (
    CHECKOUT,
    MissingVariable,
    compose_interpolated,
    compose_read,
    dockerfile_stages,
    image_environment,
    seconds,
)
from tests.support.luminet_command import understood

ENGINE_FILE = CHECKOUT / "docker-compose.engine.yml"
AGENT_FILE = CHECKOUT / "docker-compose.agent.yml"
WHERE = {
    "LUMINET_JOIN_URL": "https://luminet.example.com",
    "LUMINET_AGENT_NAME": "gpu-2",
    "LUMINET_AGENT_BIND": "10.0.0.12",
}
ENGINES: dict[str, dict[str, Any]] = compose_interpolated({}, ENGINE_FILE)["services"]
AGENTS: dict[str, dict[str, Any]] = compose_interpolated(WHERE, AGENT_FILE)["services"]
ALL = {
    f"{file.name}: {name}": service
    for file, services in ((ENGINE_FILE, ENGINES), (AGENT_FILE, AGENTS))
    for name, service in services.items()
}
assert all((ENGINES, AGENTS)), "a loop over none of them would check nothing"
STAGES = dockerfile_stages()


def agent_options(name: str) -> AgentOptions:
    program, door, *arguments = AGENTS[name]["command"]
    assert (program, door) == ("luminet", "agent")
    understood([door, *arguments])
    return _read(*agent_parser().parse_known_args(arguments))


def test_an_engine_alone_is_started_as_it_takes_it(subtests: pytest.Subtests) -> None:
    for name in ENGINES:
        with subtests.test(msg=name):
            program, door, *arguments = ENGINES[name]["command"]
            assert (program, door) == ("luminet", "engine")
            config = engine_config(engine_parser().parse_args(arguments), {})
            assert (config.model, config.port, config.state, config.is_alone) == (
                Path("/model"),
                8101,
                Path("/state"),
                True,
            )
            assert seconds(ENGINES[name]["stop_grace_period"]) > config.drain_seconds


def test_an_agent_joins_and_starts_the_engine_it_is_named_after(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("agent", "paged", "auto"),
        ("agent-gpu", "paged", "cuda"),
        ("agent-vllm", "vllm", "cuda"),
    ]
    for name, backend, device in cases:
        with subtests.test(msg=name):
            options = agent_options(name)
            assert (options.joining.url, options.joining.name) == (
                WHERE["LUMINET_JOIN_URL"],
                WHERE["LUMINET_AGENT_NAME"],
            )
            assert options.joining.token is None, "it comes by the environment, which is not everybody's to read"
            assert options.joining.broker is None, "it goes where the control plane says"
            assert options.advertised.address == "http://10.0.0.12:8101"
            _, module, *rest = _engine_command(options, Path("/model"), "gpu-2", Path("/agent/engine/identity-secret"))[
                1:
            ]
            assert module == "engine_agent.server.command"
            config = engine_config(engine_parser().parse_args(rest), {})
            assert (config.backend, config.settings.device, config.host) == (backend, device, "0.0.0.0")
            assert seconds(AGENTS[name]["stop_grace_period"]) > STOP_SECONDS + SidecarConfig(Path()).stop_seconds


def test_what_only_its_owner_knows_of_a_machine_is_asked_for_by_name(subtests: pytest.Subtests) -> None:
    for missing in WHERE:
        with subtests.test(msg=missing), pytest.raises(MissingVariable, match=rf"\b{missing}\b.*\.env"):
            compose_interpolated({name: value for name, value in WHERE.items() if name != missing}, AGENT_FILE)


def test_where_gateways_reach_it_may_be_another_address_than_the_one_it_listens_at() -> None:
    behind = compose_interpolated({**WHERE, "LUMINET_AGENT_ADDRESS": "https://gpu-2.example.com"}, AGENT_FILE)
    assert "https://gpu-2.example.com" in behind["services"]["agent-gpu"]["command"]


def test_authorities_of_ones_own_vouch_for_control_plane_and_broker() -> None:
    own = compose_interpolated({**WHERE, "LUMINET_CA_FILE": "/etc/luminet/ca.pem"}, AGENT_FILE)["services"]
    for service in own.values():
        mounted = {volume.split(":")[1]: volume for volume in service["volumes"]}
        assert mounted[service["environment"]["SSL_CERT_FILE"]].startswith("/etc/luminet/ca.pem:")


def test_each_profile_of_each_file_runs_one_service() -> None:
    assert {name: service["profiles"] for name, service in ENGINES.items()} == {
        "engine": ["cpu"],
        "engine-gpu": ["gpu"],
    }
    assert {name: service["profiles"] for name, service in AGENTS.items()} == {
        "agent": ["cpu"],
        "agent-gpu": ["gpu"],
        "agent-vllm": ["vllm"],
    }


def test_an_engine_alone_is_published_on_loopback_and_an_agent_where_it_is_told() -> None:
    assert {tuple(service["ports"]) for service in ENGINES.values()} == {("127.0.0.1:8101:8101",)}
    assert {tuple(service["ports"]) for service in AGENTS.values()} == {("10.0.0.12:8101:8101",)}


def test_by_default_it_serves_the_demo_model(subtests: pytest.Subtests) -> None:
    for name, service in ALL.items():
        with subtests.test(msg=name):
            model = service["volumes"][0].split(":")[0]
            assert (CHECKOUT / model / "config.json").is_file()
            assert service["volumes"][0].endswith(":/model:ro")


def test_it_has_the_least_it_can_work_with(subtests: pytest.Subtests) -> None:
    for name, service in ALL.items():
        with subtests.test(msg=name):
            assert service["cap_drop"] == ["ALL"]
            assert "no-new-privileges:true" in service["security_opt"]
            assert (service["read_only"], service["init"], service["restart"]) == (True, True, "unless-stopped")
            assert not {"privileged", "cap_add", "network_mode", "pid", "devices", "user"} & set(service)
            assert service["mem_limit"]
            assert service["pids_limit"]


def test_what_is_written_goes_to_a_volume_or_into_memory(subtests: pytest.Subtests) -> None:
    for name, service in ALL.items():
        with subtests.test(msg=name):
            kept = [volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
            caches = image_environment(STAGES, service["build"]["target"])["XDG_CACHE_HOME"]
            assert kept == (["/state"] if service["command"][1] == "engine" else ["/agent", "/state"])
            assert Path(caches).is_relative_to("/state")


def test_whoever_needs_a_gpu_gets_one(subtests: pytest.Subtests) -> None:
    for name, service in ALL.items():
        with subtests.test(msg=name):
            if service["profiles"] == ["cpu"]:
                assert "deploy" not in service
            else:
                (device,) = service["deploy"]["resources"]["reservations"]["devices"]
                assert (device["driver"], device["device_ids"], device["capabilities"]) == ("nvidia", ["0"], ["gpu"])


def test_a_variable_of_both_machines_means_the_same_on_both(subtests: pytest.Subtests) -> None:
    """So that one `.env` may serve several files, and one table of them is enough."""
    for file in (ENGINE_FILE, AGENT_FILE):
        with subtests.test(msg=file.name):
            main = (CHECKOUT / "docker-compose.yml").read_text()
            for name, default in set(re.findall(r"\$\{([A-Z_]+):-([^{}]*)\}", file.read_text())):
                if f"${{{name}:-" in main:
                    assert f"${{{name}:-{default}}}" in main, name
            assert compose_read(file)["name"] != compose_read()["name"]
