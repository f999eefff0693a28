"""What `deploy/systemd/` promises, without systemd: its commands are taken, and stop in good order."""

import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

from engine_agent.backends.engine_config import engine_config
from engine_agent.gateway.command import parser as gateway_parser
from engine_agent.gateway.config import GatewayConfig, gateway_config
from engine_agent.server.command import parser as engine_parser
from engine_agent.sidecar.command import AgentOptions, _engine_command, _read
from engine_agent.sidecar.command import parser as agent_parser
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.engine_child import STOP_SECONDS
from tests.compose.files import CHECKOUT, COMPOSE_FILE, compose_read, seconds
from tests.support.luminet_command import understood

FOLDER = CHECKOUT / "deploy" / "systemd"
UNITS = sorted(path.name for path in FOLDER.iterdir())
CONTROL, GATEWAY, AGENT = "luminet@.service", "luminet-gateway.service", "luminet-agent.service"
PRODUCTION = (CHECKOUT / "docs" / "production.md").read_text()
STATE = Path("/var/lib/luminet")


class Unit(ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr  # names as they are


def unit(name: str) -> Unit:
    """As systemd reads it: `\\` joins lines, and a name may come twice."""
    read = Unit(strict=False, interpolation=None, delimiters=("=",))
    read.read_string((FOLDER / name).read_text().replace("\\\n", " "))
    return read


def arguments(name: str) -> list[str]:
    program, *rest = shlex.split(unit(name)["Service"]["ExecStart"])
    assert program == "/srv/luminet/.venv/bin/luminet"
    return rest


def agent_options() -> AgentOptions:
    door, *rest = arguments(AGENT)
    assert door == "agent"
    return _read(*agent_parser().parse_known_args(rest))


def gateway() -> GatewayConfig:
    door, *rest = arguments(GATEWAY)
    assert door == "gateway"
    return gateway_config(gateway_parser().parse_args(rest), {})


def assignments(name: str) -> dict[str, str]:
    """Of `Environment=`, which stands there more than once."""
    lines = (FOLDER / name).read_text().splitlines()
    pairs = (line.removeprefix("Environment=").partition("=") for line in lines if line.startswith("Environment="))
    return {variable: value for variable, _, value in pairs}


def test_these_are_all() -> None:
    assert sorted((CONTROL, GATEWAY, AGENT)) == UNITS


def test_each_part_of_the_control_plane_is_one_luminet_has(subtests: pytest.Subtests) -> None:
    for part in ("web", "worker", "beat"):
        with subtests.test(msg=part):
            words = [word.replace("%i", part) for word in arguments(CONTROL)]
            assert understood(words)["part"] == part
            assert f"luminet@{part}" in PRODUCTION


def test_a_gateway_joins_the_web_beside_it() -> None:
    config = gateway()
    assert (config.joining.url, config.joining.name) == ("http://127.0.0.1:8000", "gateway-1")
    assert config.joining.token is None, "everybody on the machine can read a command line"
    assert (config.joining.broker, config.host, config.port) == ("redis://127.0.0.1:6379/0", "127.0.0.1", 8080)
    assert config.home.parent == STATE


def test_an_agent_joins_by_tls_and_its_engine_takes_the_rest() -> None:
    options = agent_options()
    assert (options.joining.url, options.joining.name) == ("https://luminet.example.com", "agent-b")
    assert options.joining.token is None, "everybody on the machine can read a command line"
    assert options.home.parent == STATE
    assert options.model is not None
    _, _, *rest = _engine_command(options, options.model, "agent-b", options.home / "engine" / "identity-secret")[1:]
    config = engine_config(engine_parser().parse_args(rest), {})
    assert (config.host, config.port, config.settings.device) == ("10.0.0.20", 8101, "cuda")
    assert options.advertised.address == f"http://{config.host}:{config.port}"


def test_an_agents_kernels_are_kept() -> None:
    caches = assignments(AGENT)
    assert set(caches) == {"XDG_CACHE_HOME", "TRITON_CACHE_DIR"}
    assert all(Path(folder).is_relative_to(STATE) for folder in caches.values())


def test_whatever_ends_is_started_again_as_its_own_user(subtests: pytest.Subtests) -> None:
    for name in UNITS:
        with subtests.test(msg=name):
            service = unit(name)["Service"]
            assert (service["Restart"], service["User"], service["StateDirectory"]) == ("always", "luminet", STATE.name)
            assert (service["WorkingDirectory"], unit(name)["Install"]["WantedBy"]) == (
                "/srv/luminet",
                "multi-user.target",
            )


def test_only_the_process_that_was_started_is_told_to_end(subtests: pytest.Subtests) -> None:
    """By systemd's default the engine would be told as well, and its sidecar tells it again, which cuts answers off."""
    for name in UNITS:
        with subtests.test(msg=name):
            assert unit(name)["Service"]["KillMode"] == "mixed"


def test_nobody_is_killed_before_what_runs_has_ended() -> None:
    patience = {name: float(unit(name)["Service"]["TimeoutStopSec"]) for name in UNITS}
    assert patience[AGENT] > STOP_SECONDS + SidecarConfig(Path()).stop_seconds
    assert patience[GATEWAY] > gateway().drain_seconds
    assert patience[CONTROL] >= seconds(compose_read(COMPOSE_FILE)["services"]["worker"]["stop_grace_period"])


def test_the_guide_names_each_unit_and_what_it_reads(subtests: pytest.Subtests) -> None:
    for name in UNITS:
        with subtests.test(msg=name):
            assert name in PRODUCTION
            assert unit(name)["Service"]["EnvironmentFile"] in PRODUCTION
