"""What the engine's compose files and its image promise, checked without Docker."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine_agent.server.command import parser
from engine_agent.sidecar.command import parser as agent_parser
from tests.compose import (
    CHECKOUT,
    compose_interpolated,
    compose_read,
    dockerfile_stages,
    ignore_patterns,
    is_ignored,
    seconds,
    stage_lineage,
)

ENGINE_FILE = CHECKOUT / "docker-compose.engine.yml"
GPU_FILE = CHECKOUT / "docker-compose.gpu.yml"
STAGES = dockerfile_stages(CHECKOUT / "deploy" / "Dockerfile.engine")
SERVICE: dict[str, Any] = compose_interpolated({}, ENGINE_FILE)["services"]["engine"]
OTHER_KEYS = {"project"}  # of pyproject.toml, on the way to an extra
PROGRAMS = {"apt-get", "groupadd", "install", "pip", "python", "rm", "useradd"}


@pytest.mark.parametrize("file", [ENGINE_FILE, GPU_FILE], ids=lambda file: file.name)
def test_the_files_fit_the_compose_specification(file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_its_command_and_the_images_own_are_what_the_engine_takes() -> None:
    program, name, *arguments = SERVICE["command"]
    assert (program, name) == ("luminet", "engine")
    options = parser().parse_args(arguments)
    assert (options.model, options.port, options.state) == (Path("/model"), 8101, Path("/state"))
    _, own = STAGES["engine"].instructions[-1]
    words = shlex.split(own.strip("[]").replace(",", " "))
    assert parser().parse_args(words[2:]).model == Path("/model")


def test_by_default_it_serves_the_demo_model_to_this_machine_alone() -> None:
    model = SERVICE["volumes"][0].split(":")[0]
    assert (CHECKOUT / model / "config.json").is_file()
    assert SERVICE["volumes"][0].endswith(":/model:ro")
    assert SERVICE["ports"] == ["127.0.0.1:8101:8101"]


def test_it_has_the_least_it_can_work_with() -> None:
    assert SERVICE["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICE["security_opt"]
    assert (SERVICE["read_only"], SERVICE["init"]) == (True, True)
    assert SERVICE["mem_limit"]
    assert SERVICE["pids_limit"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", STAGES["engine"].all("USER")[-1])


def test_what_is_written_goes_to_the_volume_or_into_memory() -> None:
    kept = [volume.split(":")[1] for volume in SERVICE["volumes"] if not volume.endswith(":ro")]
    assert kept == ["/state"]
    assert all(line.split("=")[1].startswith("/state/") for line in STAGES["engine"].all("ENV"))


def test_answers_under_way_get_the_time_they_are_promised() -> None:
    drain = parser().parse_args(SERVICE["command"][2:]).drain_seconds
    assert seconds(SERVICE["stop_grace_period"]) > drain


def test_the_gpu_file_adds_a_gpu_to_that_very_service_of_both_files() -> None:
    services = compose_interpolated({}, GPU_FILE)["services"]
    assert services.keys() == {"engine"}
    assert "engine" in compose_read()["services"]
    (device,) = services["engine"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["device_ids"], device["capabilities"]) == ("nvidia", ["0"], ["gpu"])


@pytest.mark.parametrize(("built", "extras"), [("agent-build", {"agent"}), ("build", {"agent", "engine"})])
def test_each_image_is_built_with_its_extras_alone_and_pinned(built: str, extras: set[str]) -> None:
    lines = [line for stage in stage_lineage(STAGES, built) for line in stage.all("RUN")]
    installs = [line for line in lines if "pip " in line and " install " in line]
    assert {extra for line in installs for extra in re.findall(r"\['(\w+)'\](?!\[)", line)} - OTHER_KEYS == extras
    assert all("--constraint constraints.txt" in line or "--no-deps" in line for line in installs)


def test_what_the_engines_packages_ask_of_ourselves_is_installed_already() -> None:
    """The extra `engine` asks for `luminet[agent]`, which no index has: that part is the stage below."""
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [one for one in extras["engine"] if one.startswith("luminet")] == ["luminet[agent]"]
    assert STAGES["engine-packages"].base == "agent-packages"


@pytest.mark.parametrize("built", ["agent-build", "build"])
def test_every_package_the_command_needs_is_copied_and_reaches_the_build(built: str) -> None:
    copied = {source for line in STAGES[built].all("COPY") for source in line.split()[:-1]}
    packages = {str(init.parent.relative_to(CHECKOUT)) for init in CHECKOUT.glob("*/__init__.py")} - {"tests"}
    assert packages <= copied
    assert not [source for source in copied if is_ignored(source, ignore_patterns())]


def test_the_agents_own_command_is_what_it_takes() -> None:
    _, own = STAGES["agent"].instructions[-1]
    words = shlex.split(own.strip("[]").replace(",", " "))
    assert words[:2] == ["luminet", "agent"]
    assert agent_parser().parse_args(words[2:]).home == Path("/agent")


def test_the_build_calls_nothing_that_is_not_there() -> None:
    for stage in STAGES.values():
        for line in stage.all("RUN"):
            for command in re.split(r"&&|\|\|", line):
                assert shlex.split(command)[0] in PROGRAMS, command
