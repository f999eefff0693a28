"""Bounds, and what is said when the text does not suffice."""

from dataclasses import replace

import pytest

from engine_agent.tools.quality.artefact import Measurement
from engine_agent.tools.quality.gates import (
    GATES,
    LOOSEST,
    Finding,
    gate_of,
    judged,
    judged_fact,
    judged_share,
    overall,
)
from engine_agent.tools.quality.suite import findings_of, is_control_rejected
from kernels.formats import KV_FORMATS
from tests.unit.quality.making import FIGURES, make_measurement


def test_every_format_but_the_control_has_its_own_bounds_and_a_reason() -> None:
    assert GATES.keys() == KV_FORMATS.keys() - {"int2"}
    assert all(gate.reason for gate in GATES.values())
    bounds = {name: gate_of(name).delta_percent for name in ("int8", "fp8_e4m3", "fp8", "k8v4", "int4", "nvfp4")}
    assert bounds == {"int8": 0.05, "fp8_e4m3": 0.1, "fp8": 0.2, "k8v4": 0.3, "int4": 1, "nvfp4": 1.5}


def test_the_control_must_miss_even_the_loosest() -> None:
    gate = gate_of("int2")
    assert gate is LOOSEST
    assert gate.delta_percent == 1.5
    assert all(gate.mean_divergence >= other.mean_divergence for other in GATES.values())
    assert all(gate.needle_share <= other.needle_share for other in GATES.values())


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.1, 0.9, "passed"), (0.5, 1.0, "passed"), (0.9, 1.1, "unresolved"), (1.1, 1.3, "failed")],
)
def test_an_interval_is_judged_as_a_whole(low: float, high: float, verdict: str) -> None:
    found = judged("ΔPPL", (low + high) / 2, low, high, 1.0, " %")
    assert found.verdict == verdict
    assert ("not resolved, more text is needed" in found.text) == (verdict == "unresolved")
    assert "bound 1 %" in found.text


def test_shares_and_facts() -> None:
    assert judged_share("needle", 0.95, 0.95).verdict == "passed"
    assert judged_share("needle", 0.949, 0.95).verdict == "failed"
    assert judged_fact("hit", True, "").verdict == "passed"
    assert judged_fact("hit", False, "").verdict == "failed"


def test_the_worst_finding_is_the_verdict() -> None:
    passed, unresolved, failed = (Finding("", one, "") for one in ("passed", "unresolved", "failed"))  # type: ignore[arg-type]
    assert overall([passed, passed]) == "passed"
    assert overall([passed, unresolved]) == "unresolved"
    assert overall([unresolved, failed, passed]) == "failed"


def test_the_needle_is_judged_beside_bf16_and_a_hit_by_its_bytes() -> None:
    found = findings_of("int4", FIGURES, {"0.9": 0.94}, {"0.9": 1.0}, [48])
    assert [one.verdict for one in found] == ["passed", "passed", "failed", "failed"]
    assert found[3].text == "hit differs from miss at 48"
    found = findings_of("int4", FIGURES, {"0.9": 0.94}, {"0.9": 0.98}, [])
    assert [one.verdict for one in found] == ["passed"] * 4


def bad(*, needle: float = 0.5, **changed: float) -> Measurement:
    wrong = {
        "byte_delta_percent_low": 8.0,
        "byte_delta_percent_high": 10.0,
        "byte_divergence_low": 0.09,
        "byte_divergence_high": 0.11,
    }
    figures = replace(FIGURES, **(wrong | changed))  # type: ignore[arg-type]
    return replace(make_measurement("int2"), axes={"plain": figures}, needle={"0.9": needle, "0.95": needle})


def test_the_control_is_rejected_only_if_it_misses_every_bound() -> None:
    baseline = make_measurement("bf16")
    assert is_control_rejected([baseline, bad()])
    assert not is_control_rejected([baseline, bad(byte_delta_percent_low=1.0)])
    assert not is_control_rejected([baseline, bad(byte_divergence_low=0.01)])
    assert not is_control_rejected([baseline, bad(needle=0.96)])
