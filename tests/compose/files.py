"""Reads our compose files and deploy/Dockerfile as Docker would, as far as our tests need it. Starts nothing."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
COMPOSE_FILE = CHECKOUT / "docker-compose.yml"
COMPOSE_FILES = sorted(CHECKOUT.glob("docker-compose*.yml"))
DOCKERFILE = CHECKOUT / "deploy" / "Dockerfile"
DOCKERIGNORE = CHECKOUT / ".dockerignore"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
OWNERS_OWN = ("./tls/",)  # files that are whoever's machine it is
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class MissingVariable(Exception):
    """A variable the file cannot do without has no value."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One `${…}` of the file: its name, the operator behind it and what follows that."""

    name: str
    operator: str = ""
    argument: str = ""

    @property
    def is_required(self) -> bool:
        return self.operator in {":?", "?"}

    def value(self, variables: Mapping[str, str]) -> str:
        given = variables.get(self.name)
        is_there = bool(given) if self.operator.startswith(":") else given is not None
        match self.operator[-1:]:
            case "?" if not is_there:
                raise MissingVariable(f"required variable {self.name} is missing a value: {self.argument}")
            case "-" if not is_there:
                return interpolate(self.argument, variables)
            case "+":
                return interpolate(self.argument, variables) if is_there else ""
        return given or ""


def compose_read(file: Path = COMPOSE_FILE) -> dict[str, Any]:
    """The file with its anchors merged and its variables still in it."""
    return deepcopy(_loaded(file.read_text(encoding="utf-8")))


@cache
def _loaded(text: str) -> dict[str, Any]:
    """Parse one text once: that costs ten times what a copy of the result does."""
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def compose_interpolated(variables: Mapping[str, str], file: Path = COMPOSE_FILE) -> dict[str, Any]:
    """The file as Compose runs it with these variables."""

    def filled(node: Any) -> Any:
        match node:
            case dict():
                return {name: filled(value) for name, value in node.items()}
            case list():
                return [filled(value) for value in node]
            case str():
                return interpolate(node, variables)
        return node

    interpolated: dict[str, Any] = filled(compose_read(file))
    return interpolated


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    return "".join(part if isinstance(part, str) else part.value(variables) for part in _parts(text))


def variables_in(node: Any) -> Iterator[Variable]:
    """Every variable below this node, those inside the defaults of others included."""
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from variables_in(child)
    elif isinstance(node, str):
        for part in _parts(node):
            if isinstance(part, Variable):
                yield part
                yield from variables_in("" if part.is_required else part.argument)


def _parts(text: str) -> Iterator[str | Variable]:
    """The text cut into what stands there literally and what Compose fills in."""
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        yield text[at:dollar]
        rest = text[dollar + 1 :]
        if rest.startswith("$"):
            yield "$"
            at = dollar + 2
        elif rest.startswith("{"):
            inside = rest[1 : _closing_brace(rest)]
            yield _braced(inside)
            at = dollar + len(inside) + 3
        elif name := _NAME.match(rest):
            yield Variable(name[0])
            at = dollar + 1 + name.end()
        else:
            raise ValueError(f"a lone $ in {text!r}: Compose wants it doubled")
    yield text[at:]


def _closing_brace(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return at
    raise ValueError(f"${text} is never closed")


def _braced(inside: str) -> Variable:
    name = _NAME.match(inside)
    rest = inside[name.end() :] if name else inside
    operator = re.match(r":?[-?+]|$", rest)
    if name is None or operator is None:
        raise ValueError(f"${{{inside}}} is nothing Compose understands")
    return Variable(name[0], operator[0], rest[operator.end() :])


def dangling(file: Mapping[str, Any]) -> Iterator[str]:
    """What services of an interpolated file name and is not there, and what is there and nobody names."""
    services = file["services"]
    used: dict[str, set[str]] = {"networks": set(), "volumes": set()}
    for name, service in services.items():
        used["networks"].update(service.get("networks", ()))
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source[0] not in "./":
                used["volumes"].add(source)
                if source not in (file.get("volumes") or {}):
                    yield f"{name}: volume {source} is not there"
            elif source[0] == "." and not source.startswith(OWNERS_OWN) and not (CHECKOUT / source).exists():
                yield f"{name}: {source} is not there"
        missing = [one for one in service.get("networks", ()) if one not in (file.get("networks") or {})]
        yield from (f"{name}: network {one} is not there" for one in missing)
        yield from (f"{name}: waits for {one}" for one in _unmet(service, services))
    for kind, names in used.items():
        yield from (f"{kind.removesuffix('s')} {one} is nobody's" for one in set(file.get(kind) or {}) - names)


def _unmet(service: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    """Those of its dependencies that can never be as it wants them."""
    for needed, how in service.get("depends_on", {}).items():
        other = services.get(needed)
        if other is None:
            yield f"{needed}, which is not there"
        elif not set(other.get("profiles", ())) <= set(service.get("profiles", ())):
            yield f"{needed}, which does not run wherever it does"
        elif how["condition"] == "service_healthy" and "test" not in other.get("healthcheck", {}):
            yield f"{needed}, which is never asked whether it is healthy"
        elif how["condition"] == "service_completed_successfully" and other.get("restart") != "no":
            yield f"{needed}, which never ends"


def seconds(duration: str) -> float:
    """Compose's `1m30s` in seconds."""
    found = _DURATION.findall(duration)
    if not found or "".join(map("".join, found)) != duration:
        raise ValueError(f"{duration!r} is no duration")
    return float(sum(int(number) * _SECONDS[unit] for number, unit in found))


@dataclass(slots=True)
class Stage:
    """One stage of a Dockerfile: what it stands on, and its own instructions in order."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [argument for instruction, argument in self.instructions if instruction == word]


def dockerfile_stages(file: Path = DOCKERFILE) -> dict[str, Stage]:
    """The stages by name, in the file's order."""
    stages: dict[str, Stage] = {}
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#"))
    for instruction in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, argument = instruction.strip().partition(" ")
        if word == "FROM":
            base, _, name = argument.partition(" AS ")
            stages[name or str(len(stages))] = stage = Stage(base.strip())
        elif word:
            stage.instructions.append((word, " ".join(argument.split())))
    return stages


def stage_lineage(stages: Mapping[str, Stage], name: str) -> list[Stage]:
    """The stage and those of this file it stands on, the lowest first."""
    stage = stages[name]
    return [*(stage_lineage(stages, stage.base) if stage.base in stages else []), stage]


def image_environment(stages: Mapping[str, Stage], name: str) -> dict[str, str]:
    """What the image of that stage puts into every process's environment."""
    lines = [line for stage in stage_lineage(stages, name) for line in stage.all("ENV")]
    return dict(line.split("=", 1) for line in lines)


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether Docker leaves this path out of the build's context: the last pattern that fits it or a parent decides."""
    parts = path.split("/")
    ancestry = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    ignored = False
    for pattern in patterns:
        fits = re.compile(_ignore_expression(pattern.removeprefix("!")))
        if any(fits.fullmatch(one) for one in ancestry):
            ignored = not pattern.startswith("!")
    return ignored


def ignore_patterns(file: Path = DOCKERIGNORE) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.strip().strip("/") for line in lines if line.strip() and not line.startswith("#")]


def _ignore_expression(pattern: str) -> str:
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]*\]|[^*?[]+", pattern)
    return "".join(words.get(token, token if token.startswith("[") else re.escape(token)) for token in tokens)
