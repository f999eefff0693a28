"""Identity of blocks: the keyed root of a chain, and the digest that links each full block to all tokens before it.

The root is an HMAC under the namespace's secret key, so two namespaces never share a block, and without the key nobody
can even search for a collision. The root covers everything that makes K and V differ for equal tokens: model, KV
format, scales, block size, and the epoch, which a purge changes. The engine, a gateway and any other consumer must
compute identical bits; golden vectors in the tests check that.
"""

import hmac
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NewType, overload

from engine_agent.cache.errors import InvalidValue

Digest = NewType("Digest", bytes)

KEY_BYTES = 32
DIGEST_BYTES = 32
TOKEN_BYTES = 4
LARGEST_TOKEN = 2**32 - 1
LABEL = b"luminet/kv-chain/1"


@dataclass(frozen=True, slots=True)
class ChainIdentity:
    """All inputs besides the tokens that must be equal for one request to read the blocks of another."""

    epoch: int
    model_revision: str
    kv_format: str
    scale_set: str = ""
    block_tokens: int = 16
    salt: bytes = field(default=b"", repr=False)  # the client's

    def __post_init__(self) -> None:
        for name in ("model_revision", "kv_format", "scale_set"):
            _text_checked(name, getattr(self, name))
        _bytes_checked("salt", self.salt)

    def packed(self) -> bytes:
        """Return all fields, each preceded by its length, so that no two identities share an encoding."""
        fields = (
            LABEL,
            str(self.epoch).encode(),
            self.model_revision.encode(),
            self.kv_format.encode(),
            self.scale_set.encode(),
            str(self.block_tokens).encode(),
            self.salt,
        )
        return b"".join(len(field).to_bytes(4, "little") + field for field in fields)


def key_checked(key: bytes) -> bytes:
    """Return the key, or raise InvalidValue without the key in its message."""
    _bytes_checked("key", key)
    if len(key) != KEY_BYTES:
        raise InvalidValue("key", f"{len(key)} bytes", f"{KEY_BYTES} secret bytes")
    return key


def chain_root(namespace_key: bytes, identity: ChainIdentity) -> Digest:
    """Return the root of a namespace's chains. The key is secret, so two organisations never share a block."""
    return Digest(hmac.digest(namespace_key, identity.packed(), "sha256"))


def token_array(tokens: Iterable[int]) -> "array[int]":
    """Return token ids as an array of 4-byte ints, or raise InvalidValue for a value that is not a token id."""
    try:
        return array("I", tokens)
    except TypeError as problem:
        if not isinstance(tokens, Iterable):
            raise InvalidValue("tokens", type(tokens).__name__, "a list of token ids") from problem
        raise _no_token(tokens) from problem
    except OverflowError as problem:
        raise _no_token(tokens) from problem


def packed_tokens(tokens: "array[int]") -> bytes:
    """Return the tokens as consecutive little-endian uint32 values."""
    if sys.byteorder != "little":
        tokens = tokens[:]
        tokens.byteswap()
    return tokens.tobytes()


class Digests(Sequence[Digest]):
    """The digests of consecutive blocks, concatenated in one string of bytes.

    A million blocks have a million digests. Separate objects would take twice the memory and scatter each chain over
    it.
    """

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self.packed = packed

    def __len__(self) -> int:
        return len(self.packed) // DIGEST_BYTES

    @overload
    def __getitem__(self, index: int) -> Digest: ...
    @overload
    def __getitem__(self, index: slice) -> "Digests": ...
    def __getitem__(self, index: int | slice) -> "Digest | Digests":
        if isinstance(index, int):
            offset = (index if index >= 0 else index + len(self)) * DIGEST_BYTES
            digest = self.packed[offset : offset + DIGEST_BYTES]
            if offset < 0 or not digest:
                raise IndexError(index)
            return Digest(digest)
        start, stop, step = index.indices(len(self))
        assert step == 1, "digests are cut, not picked"
        return Digests(self.packed[start * DIGEST_BYTES : stop * DIGEST_BYTES])

    def __iter__(self) -> Iterator[Digest]:
        packed = self.packed
        for offset in range(0, len(packed), DIGEST_BYTES):
            yield Digest(packed[offset : offset + DIGEST_BYTES])

    def __add__(self, digests: "Digests") -> "Digests":
        return Digests(self.packed + digests.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digests) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return f"<{len(self)} digests>"


def common_blocks(chain_digests: Digests, start: int, run_digests: Digests, stop: int) -> int:
    """Return how many leading blocks `chain_digests[start:stop]` and `run_digests` have in common.

    A digest commits to all blocks before it, so one comparison covers a whole stretch, and bisection finds where they
    part.
    """
    chain_bytes, run_bytes = chain_digests.packed, run_digests.packed
    low, high = 0, min(stop, len(chain_digests)) - start
    high = min(high, len(run_digests))
    probe = high
    while low < high:  # the first `low` agree; beyond `high` none does
        offset = (probe - 1) * DIGEST_BYTES
        at = start * DIGEST_BYTES + offset
        if chain_bytes[at : at + DIGEST_BYTES] == run_bytes[offset : offset + DIGEST_BYTES]:
            low = probe
        else:
            high = probe - 1
        probe = (low + high + 1) // 2
    return max(0, low)


def block_keys(parent: Digest, packed: bytes, block_tokens: int) -> Digests:
    """Return the digests of the full blocks in `packed`, in order, after `parent`: a digest or the root."""
    width = block_tokens * TOKEN_BYTES
    digests: list[bytes] = []
    hashed, digest, add = sha256, bytes(parent), digests.append
    for start in range(0, len(packed) - width + 1, width):
        digest = hashed(digest + packed[start : start + width]).digest()
        add(digest)
    return Digests(b"".join(digests))


def _no_token(tokens: Iterable[object]) -> InvalidValue:
    """Return an error with the wrong token's index. It shows numbers only; other values must not enter a log."""
    index, invalid_token = next(
        ((position, token) for position, token in enumerate(tokens) if not _is_token(token)), (0, None)
    )
    shown_token = invalid_token if isinstance(invalid_token, int) else type(invalid_token).__name__
    return InvalidValue(f"tokens[{index}]", shown_token, f"a whole number from 0 to {LARGEST_TOKEN}")


def _is_token(token: object) -> bool:
    return isinstance(token, int) and 0 <= token <= LARGEST_TOKEN


def _text_checked(name: str, value: object) -> None:
    """Raise InvalidValue unless the value is text that can be encoded; half a surrogate pair cannot."""
    if type(value) is not str or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidValue(name, type(value).__name__, "text")


def _bytes_checked(name: str, value: object) -> None:
    if type(value) is not bytes:
        raise InvalidValue(name, type(value).__name__, "bytes")
