"""Sealing, and the shape of bearer secrets. That nothing of either leaks is tests/integration/test_audit.py."""

import string
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import LazySettings
from hypothesis import given
from hypothesis import strategies as st

from tenants import crypto
from tenants.crypto import (
    ALPHABET,
    NewSecret,
    Unreadable,
    purpose_key,
    seal,
    secret_hash,
    secret_is_well_formed,
    secret_new,
    unseal,
)

PLACE = "pin 1 of namespace 2"


@pytest.fixture
def _fresh_keys() -> Iterator[None]:
    """Keys are derived once and kept: forgotten before a test takes other secrets, and after it."""
    _forget_keys()
    yield
    _forget_keys()


def _forget_keys() -> None:
    crypto.purpose_key.cache_clear()
    crypto._aeads.cache_clear()


def use_secrets(settings: LazySettings, **changed: Any) -> None:
    environment = settings.ENVIRONMENT
    settings.ENVIRONMENT = replace(environment, secrets=replace(environment.secrets, **changed))
    _forget_keys()


def test_what_is_sealed_opens_in_its_place() -> None:
    assert unseal(seal(b"secret", place=PLACE), place=PLACE) == b"secret"
    assert unseal(memoryview(seal(b"", place=PLACE)), place=PLACE) == b""


def test_nothing_of_it_can_be_read_and_no_two_look_alike() -> None:
    first, second = (seal(b"a secret that repeats", place=PLACE) for _ in range(2))
    assert first != second
    assert b"secret" not in first


@pytest.mark.parametrize("place", ["", "pin 1 of namespace 3", "pin 11 of namespace 2", PLACE + " ", PLACE[:-1]])
def test_it_cannot_be_moved_to_another_place(place: str) -> None:
    with pytest.raises(Unreadable):
        unseal(seal(b"secret", place=PLACE), place=place)


@given(st.integers(min_value=0), st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(position: int, change: int) -> None:
    sealed = bytearray(seal(b"secret", place=PLACE))
    sealed[position % len(sealed)] ^= change
    with pytest.raises(Unreadable):
        unseal(bytes(sealed), place=PLACE)


@pytest.mark.parametrize("length", [0, 1, 5, 16, 17, 33])
def test_a_piece_of_it_opens_nothing(length: int) -> None:
    with pytest.raises(Unreadable):
        unseal(seal(b"secret", place=PLACE)[:length], place=PLACE)


@pytest.mark.usefixtures("_fresh_keys")
def test_another_master_key_opens_nothing(settings: LazySettings) -> None:
    sealed = seal(b"secret", place=PLACE)
    use_secrets(settings, master_key=b"\x01" * 32)
    with pytest.raises(Unreadable):
        unseal(sealed, place=PLACE)


@pytest.mark.usefixtures("_fresh_keys")
def test_another_pepper_recognises_no_key(settings: LazySettings) -> None:
    secret = secret_new("lmk")
    use_secrets(settings, pepper=b"\x01" * 32)
    assert secret_hash(secret.secret) != secret.hash


def test_no_key_is_used_for_two_purposes() -> None:
    made = {purpose_key(root, use) for root in ("master_key", "pepper", "signing_key") for use in ("sealing", "other")}
    assert len(made) == 2  # the tests' three secrets are one; the purposes are two


# Bearer secrets


def test_a_secret_is_recognisable_and_has_256_bits() -> None:
    found = secret_new("lmk")
    assert found.secret.startswith("lmk_")
    assert len(found.secret) == len("lmk_") + 43 + 6
    assert len(ALPHABET) ** 43 > 2**256
    assert set(found.secret[4:]) <= set(string.ascii_letters + string.digits)


def test_what_is_kept_of_it_is_its_beginning_and_a_hash() -> None:
    found = secret_new("lmo")
    assert found.prefix == found.secret[:12]
    assert found.hash == secret_hash(found.secret)
    assert len(found.hash) == 32


def test_no_two_are_alike() -> None:
    assert len({secret_new("lmk").secret for _ in range(100)}) == 100


def test_a_secret_is_not_in_its_repr() -> None:
    found = secret_new("lmk")
    assert found.secret not in repr(found)
    assert repr(NewSecret("s3cret", "pre", b"hash")) == "NewSecret(prefix='pre')"


def test_a_whole_secret_is_well_formed_for_its_kind_alone() -> None:
    secret = secret_new("lmk").secret
    assert secret_is_well_formed("lmk", secret)
    assert not secret_is_well_formed("lmo", secret)
    assert not secret_is_well_formed("lmo", "lmo" + secret[3:])


@given(st.integers(4, 52), st.sampled_from(ALPHABET))
def test_a_typing_error_is_seen_without_a_look_up(position: int, letter: str) -> None:
    secret = secret_new("lmk").secret
    typed = secret[:position] + letter + secret[position + 1 :]
    assert secret_is_well_formed("lmk", typed) is (typed == secret)


@given(st.integers(4, 51))
def test_two_letters_swapped_are_seen(position: int) -> None:
    secret = secret_new("lmk").secret
    first, second = secret[position], secret[position + 1]
    typed = secret[:position] + second + first + secret[position + 2 :]
    assert secret_is_well_formed("lmk", typed) is (first == second)


@pytest.mark.parametrize(
    "wrong", ["", "lmk_", "lmk_x", "lmk_" + "é" * 49, "lmk_" + "x" * 49, "\ud800" * 53, "x" * 10_000]
)
def test_anything_else_is_not_well_formed(wrong: str) -> None:
    assert not secret_is_well_formed("lmk", wrong)


@given(st.text())
def test_no_text_breaks_the_check(text: str) -> None:
    assert not secret_is_well_formed("lmk", text)
