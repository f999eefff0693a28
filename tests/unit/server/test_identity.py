"""The signed header: what is believed, and everything that is not."""

import base64
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts import identity as module
from engine_agent.contracts.identity import (
    LIFETIME_SECONDS,
    LONGEST_SECONDS,
    BadIdentity,
    Identity,
    TooManyUsed,
    UsedBefore,
    UsedOnce,
    sign,
    verify,
)
from engine_agent.contracts.protocol import canonical_json
from tests.support.case_names import case_name
from tests.unit.server.identities import IDENTITY, NOW, OTHER, SECRET


def verified(header: str, *, audience: str = "agent-1", now: float = NOW) -> Identity:
    return verify(header, [SECRET], audience=audience, now=now)


def signed(told: Any, secret: bytes = SECRET) -> str:
    """Whatever somebody who knows the secret could sign."""
    head = "v1." + base64.urlsafe_b64encode(canonical_json(told)).rstrip(b"=").decode()
    return f"{head}.{module._signature(head, secret)}"


def test_what_was_signed_is_what_is_verified() -> None:
    assert verified(sign(IDENTITY, SECRET)) == IDENTITY
    assert verified(sign(replace(IDENTITY, deadline=None), SECRET)).deadline is None


def test_the_header_is_a_version_a_payload_and_a_signature() -> None:
    identity = replace(IDENTITY, elsewhere_tokens=64, key_id="0192f3a0-7d1c-4c3e-9a55-4f6f2f0e8d11")
    version, payload, signature = sign(identity, SECRET).split(".")
    assert version == "v1"
    assert json.loads(base64.urlsafe_b64decode(payload + "==")) == asdict(identity)
    assert len(base64.urlsafe_b64decode(signature + "=")) == 32


def test_any_of_several_secrets_will_do_while_one_replaces_the_other() -> None:
    header = sign(IDENTITY, OTHER)
    assert verify(header, [SECRET, OTHER], audience="agent-1", now=NOW) == IDENTITY
    with pytest.raises(BadIdentity, match="none of the secrets"):
        verify(header, [SECRET], audience="agent-1", now=NOW)


def test_without_any_secret_nobody_is_believed() -> None:
    with pytest.raises(BadIdentity, match="none of the secrets"):
        verify(sign(IDENTITY, SECRET), [], audience="agent-1", now=NOW)


def test_a_short_secret_signs_nothing() -> None:
    with pytest.raises(ValueError, match="31 bytes"):
        sign(IDENTITY, b"x" * 31)


def test_it_is_made_for_one_engine() -> None:
    with pytest.raises(BadIdentity, match="not for agent-2"):
        verified(sign(IDENTITY, SECRET), audience="agent-2")


def test_it_is_good_until_the_moment_it_expires() -> None:
    header = sign(IDENTITY, SECRET)
    assert verified(header, now=IDENTITY.expires_at - 0.001) == IDENTITY
    with pytest.raises(BadIdentity, match="expired"):
        verified(header, now=IDENTITY.expires_at)


def test_one_that_is_good_for_too_long_is_not_believed() -> None:
    header = sign(replace(IDENTITY, expires_at=NOW + LONGEST_SECONDS + 1), SECRET)
    with pytest.raises(BadIdentity, match="301 s"):
        verified(header)


@pytest.mark.parametrize("header", ["", ".", "..", "v1..", "v2.e30.x", "é", "v1." + "a" * 5_000 + ".x"])
def test_what_has_not_its_form_is_refused(header: str) -> None:
    with pytest.raises(BadIdentity):
        verified(header)


@given(st.data())
def test_no_other_header_has_its_signature(data: st.DataObject) -> None:
    header = sign(IDENTITY, SECRET)
    at = data.draw(st.integers(0, len(header) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda one: one != header[at]))
    with pytest.raises(BadIdentity):
        verified(header[:at] + other + header[at + 1 :])


@given(st.text(max_size=200))
def test_no_text_at_all_makes_it_fail_otherwise(header: str) -> None:
    with pytest.raises(BadIdentity):
        verified(header)


def test_nonsense_is_refused_whoever_signed_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        [],
        None,
        {},
        asdict(IDENTITY) | {"more": 1, "critical": ["more"]},
        asdict(IDENTITY) | {"elsewhere_tokens": -1},
        asdict(IDENTITY) | {"elsewhere_tokens": None},
        asdict(IDENTITY) | {"key_id": "a key\n"},
        asdict(IDENTITY) | {"key_id": None},
        asdict(IDENTITY) | {"attempt": True},
        asdict(IDENTITY) | {"attempt": -1},
        asdict(IDENTITY) | {"attempt": 0},
        asdict(IDENTITY) | {"kind": "pin"},
        asdict(IDENTITY) | {"issued_at": None},
        asdict(IDENTITY) | {"namespace": "two\r\nlines"},
        asdict(IDENTITY) | {"kind": "operator"},
        asdict(IDENTITY) | {"kind": ["customer"]},
        asdict(IDENTITY) | {"expires_at": "soon"},
        asdict(IDENTITY) | {"expires_at": 10**400},
        asdict(IDENTITY) | {"deadline": False},
    ]
    for told in cases:
        with subtests.test(msg=case_name(told)), pytest.raises(BadIdentity, match=r"payload|cannot have"):
            verified(signed(told))


def test_nobody_signs_what_nobody_would_believe() -> None:
    with pytest.raises(ValueError, match="namespace"):
        sign(replace(IDENTITY, namespace=""), SECRET)


def test_a_refusal_quotes_nothing_secret() -> None:
    with pytest.raises(BadIdentity) as caught:
        verified(signed(asdict(IDENTITY) | {"organisation": "höchst geheim"}))
    assert "geheim" not in str(caught.value)


def test_an_attempt_is_used_once() -> None:
    used = UsedOnce()
    used.use(IDENTITY, NOW)
    with pytest.raises(BadIdentity, match="here before"):
        used.use(IDENTITY, NOW + 1)
    used.use(replace(IDENTITY, attempt=2), NOW + 1)


def test_two_organisations_may_use_the_same_ids() -> None:
    used = UsedOnce()
    used.use(IDENTITY, NOW)
    used.use(replace(IDENTITY, organisation_id="another"), NOW)


def test_a_clock_set_forward_and_back_lets_nothing_in_twice() -> None:
    used = UsedOnce()
    used.use(IDENTITY, NOW)
    later = NOW + 3_600
    used.use(replace(IDENTITY, request_id="req-2", expires_at=later + LIFETIME_SECONDS), later)
    assert len(used) == 1
    with pytest.raises(UsedBefore):
        used.use(IDENTITY, NOW + 1)
    used.use(replace(IDENTITY, request_id="req-3", expires_at=IDENTITY.expires_at + 1), NOW + 1)


def test_what_was_issued_before_an_engine_began_is_not_believed() -> None:
    header = sign(IDENTITY, SECRET)
    assert verify(header, [SECRET], audience="agent-1", now=NOW, since=NOW) == IDENTITY
    with pytest.raises(BadIdentity, match=r"issued 0\.5 s before this engine began"):
        verify(header, [SECRET], audience="agent-1", now=NOW + 1, since=NOW + 0.5)


def test_what_has_expired_is_forgotten() -> None:
    used = UsedOnce(most=2)
    for number in range(1_000):
        now = NOW + number * LIFETIME_SECONDS
        used.use(replace(IDENTITY, request_id=f"req-{number}", expires_at=now + LIFETIME_SECONDS), now)
        assert len(used) <= 2


def test_nothing_is_forgotten_early_to_make_room() -> None:
    used = UsedOnce(most=2)
    used.use(IDENTITY, NOW)
    used.use(replace(IDENTITY, attempt=2), NOW)
    with pytest.raises(TooManyUsed, match="2 others"):
        used.use(replace(IDENTITY, attempt=3), NOW)
    with pytest.raises(BadIdentity, match="here before"):
        used.use(IDENTITY, NOW)
