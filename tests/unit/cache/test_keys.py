"""Golden vectors: an engine, a gateway and whoever else computes digests must agree to the bit, today and next year."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.cache.errors import InvalidValue
from engine_agent.cache.keys import (
    ChainIdentity,
    Digest,
    Digests,
    block_keys,
    chain_root,
    key_checked,
    packed_tokens,
    token_array,
)

KEY = bytes(range(32))
IDENTITY = ChainIdentity(epoch=7, model_revision="llama@1", kv_format="fp8", scale_set="s1", salt=b"alice")


def test_the_identity_is_packed_as_written_down() -> None:
    assert IDENTITY.packed() == (
        b"\x12\0\0\0luminet/kv-chain/1\x01\0\0\0007\x07\0\0\0llama@1\x03\0\0\0fp8\x02\0\0\0s1\x02\0\0\00016\x05\0\0\0alice"
    )


def test_the_root_is_the_golden_one() -> None:
    assert chain_root(KEY, IDENTITY) == hmac.new(KEY, IDENTITY.packed(), sha256).digest()
    assert chain_root(KEY, IDENTITY).hex() == "a76c41e13c52a9f1b7ae5551137f17aa94e472a97302598e909f1dc7733c58c1"


def test_the_links_are_the_golden_ones() -> None:
    tokens = [0, 1, 65_536, 2**32 - 1, *range(4, 32), 99]  # two blocks, and one token more
    packed = packed_tokens(token_array(tokens))
    assert packed[:16].hex() == "000000000100000000000100ffffffff"
    first, second = block_keys(chain_root(KEY, IDENTITY), packed, 16)
    assert first == sha256(chain_root(KEY, IDENTITY) + packed[:64]).digest()
    assert second == sha256(first + packed[64:128]).digest()
    assert (first.hex(), second.hex()) == (
        "08012a540b2219541580575cfa6962452c00c71b471bf607ed695cf7c98e044c",
        "ffc2e1f1f2f84b26ebf58eb4b4246c610d20ba5e816d168ea7317de3f03c72b2",
    )


def test_a_chain_goes_on_from_its_last_digest() -> None:
    tokens = list(range(48))
    root = chain_root(KEY, IDENTITY)
    whole = block_keys(root, packed_tokens(token_array(tokens)), 16)
    assert whole[1:] == block_keys(whole[0], packed_tokens(token_array(tokens[16:])), 16)


@pytest.mark.parametrize(
    "other",
    [
        ChainIdentity(8, "llama@1", "fp8", "s1", salt=b"alice"),
        ChainIdentity(7, "llama@2", "fp8", "s1", salt=b"alice"),
        ChainIdentity(7, "llama@1", "int8", "s1", salt=b"alice"),
        ChainIdentity(7, "llama@1", "fp8", "s2", salt=b"alice"),
        ChainIdentity(7, "llama@1", "fp8", "s1", block_tokens=32, salt=b"alice"),
        ChainIdentity(7, "llama@1", "fp8", "s1", salt=b"bob"),
        ChainIdentity(7, "llama@", "1fp8", "s1", salt=b"alice"),
        ChainIdentity(7, "llama@1", "fp8s", "1", salt=b"alice"),
    ],
)
def test_anything_else_makes_another_root(other: ChainIdentity) -> None:
    assert chain_root(KEY, other) != chain_root(KEY, IDENTITY)


def test_another_key_makes_another_root() -> None:
    assert chain_root(bytes(32), IDENTITY) != chain_root(KEY, IDENTITY)


texts = st.text(max_size=6)
identities = st.builds(
    ChainIdentity,
    epoch=st.integers(0, 20),
    model_revision=texts,
    kv_format=texts,
    scale_set=texts,
    block_tokens=st.integers(1, 99),
    salt=st.binary(max_size=6),
)


@given(identities, identities)
def test_two_identities_never_share_an_encoding(one: ChainIdentity, other: ChainIdentity) -> None:
    assert (one.packed() == other.packed()) == (one == other)


@pytest.mark.parametrize("token", [-1, 2**32, 1.5, "7", None])
def test_what_is_no_token_is_named_with_its_place(token: object) -> None:
    with pytest.raises(InvalidValue, match=r"tokens\[2\]: expected a whole number from 0 to 4294967295"):
        token_array([1, 2, token])  # type: ignore[list-item]


@pytest.mark.parametrize("key", [b"", b"short", bytes(33), "x" * 32])
def test_a_key_of_another_size_is_refused_without_being_shown(key: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        key_checked(key)  # type: ignore[arg-type]
    assert refused.value.field == "key"
    assert "short" not in str(refused.value)
    assert "xxx" not in str(refused.value)


def test_less_than_a_block_has_no_digest() -> None:
    assert block_keys(Digest(bytes(32)), packed_tokens(token_array(range(15))), 16) == Digests()
