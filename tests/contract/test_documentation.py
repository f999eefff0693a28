import re
from pathlib import Path

import pytest

from tests.support.luminet_command import commands

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "engine_agent", "kernels", "tenants")
SOURCES = [path for part in PACKAGES for path in (CHECKOUT / part).rglob("*.py")]
COMPOSE_FILES = sorted(CHECKOUT.glob("docker-compose*.yml"))
OPERATIONS = (CHECKOUT / "docs" / "operations.md").read_text()
SETTING = re.compile(r"LUMINET_[A-Z_]*[A-Z]")


def settings_in(text: str) -> set[str]:
    return set(SETTING.findall(text))


def test_every_setting_is_documented() -> None:
    read = [*SOURCES, *COMPOSE_FILES]
    used = set().union(*(settings_in(path.read_text()) for path in read))
    assert used
    assert used - settings_in(OPERATIONS) == set()


def test_no_setting_is_documented_that_does_not_exist() -> None:
    others = [*(CHECKOUT / "tests").rglob("*.py"), *COMPOSE_FILES]
    used = set().union(*(settings_in(path.read_text()) for path in [*SOURCES, *others]))
    assert settings_in(OPERATIONS) - used == set()


def test_every_metric_is_documented() -> None:
    from prometheus_client import REGISTRY

    import controlplane.common.metrics  # noqa: F401 (importing it registers what it measures)

    ours = {family.name for family in REGISTRY.collect() if family.name.startswith("luminet_")}
    assert len(ours) >= 4
    assert {name for name in ours if f"`{name}" not in OPERATIONS} == set()


def test_every_command_is_documented() -> None:
    found = list(commands())
    assert "luminet stack up" in found
    assert [command for command in found if f"`{command}" not in OPERATIONS] == []


def test_every_make_target_has_a_word_of_help_and_the_readme_names_those_people_use() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) - {"python"}
    assert targets == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    readme = (CHECKOUT / "README.md").read_text()
    for target in ("up", "down", "clean", "test", "check", "bench"):
        assert f"make {target}" in readme


def test_no_link_leads_nowhere(subtests: pytest.Subtests) -> None:
    pages = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
    assert CHECKOUT / "README.md" in pages
    for page in pages:
        with subtests.test(msg=str(page.relative_to(CHECKOUT))):
            for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
                assert (page.parent / target).exists(), target


def test_every_dependency_has_its_reason() -> None:
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    reasons = (CHECKOUT / "docs" / "decisions" / "0002-dependencies.md").read_text().lower()
    wanted = [one for extra in project["optional-dependencies"].values() for one in extra]
    names = {match[0].lower() for one in wanted if (match := re.match(r"[A-Za-z0-9-]+", one))}
    names -= {project["name"]}  # one extra may begin with another
    assert {name for name in names if f"`{name}`" not in reasons} == set()
