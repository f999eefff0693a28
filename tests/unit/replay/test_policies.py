"""Policies, pools and shares as people write them."""

import argparse
import math
from collections.abc import Callable
from typing import Any

import pytest

from engine_agent.cache.policy import NamespacePolicy
from engine_agent.process.option_types import whole_read
from engine_agent.tools.replay.policies import (
    DEFAULT_TTLS,
    Setup,
    Shares,
    Ttl,
    factor_read,
    modes_read,
    seconds_read,
    share_read,
    spans_read,
    tokens_read,
    ttl_read,
    weight_read,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (ttl_read, "none", Ttl()),
        (ttl_read, "300", Ttl("sliding", 300)),
        (ttl_read, "sliding:300", Ttl("sliding", 300)),
        (ttl_read, "absolute:5m", Ttl("absolute", 300)),
        (seconds_read, "0.5s", 0.5),
        (seconds_read, "7d", 604_800),
        (spans_read, "60,5m,1h", [60, 300, 3600]),
        (modes_read, "absolute,sliding", ["sliding", "absolute"]),
        (tokens_read, "1500000", 1_500_000),
        (tokens_read, "1.5M", 1_500_000),
        (tokens_read, "800k", 800_000),
        (tokens_read, "2G", 2_000_000_000),
        (share_read, "acme=0.25", ("acme", 0.25)),
        (share_read, "a=b=1", ("a=b", 1)),
        (weight_read, "acme=2", ("acme", 2)),
        (factor_read, "0.02", 0.02),
        (whole_read(2), "16", 16),
    ],
)
def test_what_people_write_is_understood(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (ttl_read, ("", "never", "fixed:300", "sliding:", "sliding:0", "sliding:8d", "none:3", "sliding:1e3")),
        (seconds_read, ("", "0", "-1", "nan", "5 m", "5w")),
        (spans_read, ("60,", ",", "60;300")),
        (modes_read, ("", "sliding,fixed")),
        (tokens_read, ("", "0", "-1", "1.5B", "M", "nan", "1e6", "9999999999999")),
        (share_read, ("acme", "=0.5", "acme=", "acme=half", "acme=1.1", "acme=-0.1", "acme=nan")),
        (weight_read, ("acme=0", "acme=-1", "acme=inf", "acme")),
        (factor_read, ("", "-1", "nan", "inf", "1e3")),
        (whole_read(2), ("1", "-2", "2.0", "", "9" * 30)),
    ],
)
def test_what_nobody_can_mean_is_refused_with_a_word(read: Callable[[str], Any], texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError, match=r"'.*'"):
            read(text)


def test_a_setup_is_the_policy_of_each_namespace() -> None:
    setup = Setup(Ttl("absolute", 60), 1_500_000, max_age_seconds=100, shares={"acme": Shares(0.2, 0.5, 2)})
    assert setup.policy_of("acme") == NamespacePolicy(
        ttl_seconds=60, ttl_mode="absolute", max_age_seconds=100, reserved_share=0.2, limit_share=0.5, weight=2
    )
    assert setup.policy_of("globex") == NamespacePolicy(ttl_seconds=60, ttl_mode="absolute", max_age_seconds=100)


def test_without_a_ttl_age_does_not_end_a_block_either() -> None:
    policy = Setup(Ttl(), max_age_seconds=100).policy_of("acme")
    assert (policy.ttl_seconds, policy.max_age_seconds) == (604_800, math.inf)


def test_every_row_has_a_name_of_its_own() -> None:
    labels = [Setup(ttl, pool).label for ttl in DEFAULT_TTLS for pool in (None, 1_500_000)]
    assert len(set(labels)) == len(labels)
    assert Setup(Ttl("sliding", 1800), 1_500_000).label == "sliding 1,800 s, pool 1.50 M"
