"""What holds of every compose file there is: its schema, and that whatever a service names is there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.stack.credentials import environment_lines
from tests.compose.files import (
    CHECKOUT,
    COMPOSE_FILES,
    DOCKERFILE,
    compose_interpolated,
    compose_read,
    dangling,
    dockerfile_stages,
    stage_lineage,
    variables_in,
)

SECRETS = dict(line.split("=", 1) for line in environment_lines().splitlines())
BARE = {"LUMINET_AGENT_BIND"}  # inside another's default, and asked for by an error elsewhere in the same file


def read(file: Path) -> dict[str, Any]:
    """With a value for whatever has none."""
    required = {one.name: "x" for one in variables_in(compose_read(file)) if one.is_required}
    return compose_interpolated({**required, **SECRETS}, file)


def test_the_three_files_are_there_and_all_are_looked_at() -> None:
    assert [file.name for file in COMPOSE_FILES] == [
        "docker-compose.agent.yml",
        "docker-compose.engine.yml",
        "docker-compose.yml",
    ]


def test_it_fits_the_compose_specification() -> None:
    """One run for all files: the checker names the file in what it complains of."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, *COMPOSE_FILES], capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_whatever_a_service_names_is_there_and_whatever_is_there_is_used(subtests: pytest.Subtests) -> None:
    for file in COMPOSE_FILES:
        with subtests.test(msg=file.name):
            assert list(dangling(read(file))) == []


def test_every_variable_has_a_default_or_says_what_is_missing(subtests: pytest.Subtests) -> None:
    for file in COMPOSE_FILES:
        with subtests.test(msg=file.name):
            every = list(variables_in(compose_read(file)))
            required = {one.name for one in every if one.is_required}
            assert {one.name for one in every if one.operator == ""} <= required & BARE
            defaults: dict[str, set[str]] = {}
            for one in every:
                if not one.is_required and one.operator:
                    defaults.setdefault(one.name, set()).add(one.argument)
            assert {name: found for name, found in defaults.items() if len(found) > 1} == {}, (
                "two defaults for one variable"
            )


def test_it_builds_stages_the_dockerfile_has_with_arguments_they_take(subtests: pytest.Subtests) -> None:
    for file in COMPOSE_FILES:
        with subtests.test(msg=file.name):
            stages = dockerfile_stages()
            for name, service in read(file)["services"].items():
                if build := service.get("build"):
                    assert CHECKOUT / build["context"] / build["dockerfile"] == DOCKERFILE
                    assert build["target"] in stages, name
                    taken = {line.partition("=")[0] for stage in built_on(build["target"]) for line in stage.all("ARG")}
                    assert set(build.get("args", {})) <= taken, name


def built_on(target: str) -> list[Any]:
    """The stage, those it stands on, and those it copies from."""
    stages, found = dockerfile_stages(), []
    for stage in stage_lineage(stages, target):
        found.append(stage)
        for line in stage.all("COPY"):
            if line.startswith("--from="):
                found += stage_lineage(stages, line.split()[0].removeprefix("--from="))
    return found


HEALTHY, ENDED, STARTED = (
    {"a": {"condition": condition}}
    for condition in ("service_healthy", "service_completed_successfully", "service_started")
)


def test_what_is_missing_is_found(subtests: pytest.Subtests) -> None:
    """Each of these would be an error of Compose's, or worse, none."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"networks": {}}, "web: network edge is not there"),
        ({"volumes": {}}, "gateway: volume gateway is not there"),
        ({"volumes": {"spare": None}}, "volume spare is nobody's"),
        ({"services": {"web": {"depends_on": STARTED}}}, "web: waits for a, which is not there"),
        ({"services": {"web": {"depends_on": HEALTHY}, "a": {}}}, "a, which is never asked"),
        ({"services": {"web": {"depends_on": ENDED}, "a": {}}}, "a, which never ends"),
        ({"services": {"web": {"depends_on": STARTED}, "a": {"profiles": ["x"]}}}, "a, which does not run"),
        ({"services": {"web": {"volumes": ["./no-such-file:/there:ro"]}}}, "web: ./no-such-file is not there"),
    ]
    for change, complaint in cases:
        with subtests.test(msg=complaint):
            found = list(dangling({**read(CHECKOUT / "docker-compose.yml"), **change}))
            assert any(complaint in one for one in found), found
