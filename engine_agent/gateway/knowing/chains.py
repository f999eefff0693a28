"""Computes the marks of a prompt's blocks as engines do, piece by piece: for a chat that grows, only the new pieces."""

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from engine_agent.cache.keys import (
    DIGEST_BYTES,
    TOKEN_BYTES,
    ChainIdentity,
    Digest,
    block_keys,
    chain_root,
    packed_tokens,
)
from engine_agent.contracts.block_events import MARK_BYTES
from engine_agent.gateway.knowing.remembering import Remembered
from engine_agent.gateway.tables import Namespace

NAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Ground:
    """All that engines must have in common for a prompt to have the same block keys."""

    bundle: str
    revision: str
    kv_format: str
    scale_set: str
    block_tokens: int

    def root(self, namespace: Namespace, salt: bytes) -> Digest:
        return _root(namespace.key, namespace.epoch, self, salt)


@lru_cache(maxsize=4_096)  # mostly one per namespace; a new epoch adds another
def _root(key: bytes, epoch: int, chain_key: Ground, salt: bytes) -> Digest:
    identity = ChainIdentity(
        epoch, chain_key.revision, chain_key.kv_format, chain_key.scale_set, chain_key.block_tokens, salt
    )
    return chain_root(key, identity)


@dataclass(frozen=True, slots=True)
class Link:
    """The state of a chain after a piece."""

    last: Digest  # digest of the last full block
    rest: bytes = b""  # the tokens after it
    tokens: int = 0  # number of tokens since the beginning
    marks: bytes = b""  # marks of the blocks that ended in this piece

    def then(self, tokens: "array[int]", block_tokens: int) -> "Link":
        packed = self.rest + packed_tokens(tokens)
        digests = block_keys(self.last, packed, block_tokens)
        remaining_tokens = packed[len(digests) * block_tokens * TOKEN_BYTES :]
        last_digest = digests[-1] if len(digests) else self.last
        return Link(last_digest, remaining_tokens, self.tokens + len(tokens), marks_of(digests.packed))


class Chain:
    """The chain of one prompt on one `Ground`, from its root on."""

    def __init__(
        self, chain_key: Ground, root: Digest, links: Remembered[bytes, Link], *, begins: "array[int]"
    ) -> None:
        self.ground, self.root = chain_key, root
        self._links = links
        self._name = _named(root + chain_key.bundle.encode() + packed_tokens(begins), b"")
        self._link = Link(root).then(begins, chain_key.block_tokens)
        self._marks = [self._link.marks]
        self._next: Link | None = None

    def meet(self, name: bytes) -> bool:
        """Look up the next piece, by its name, and return whether the chain over it is cached."""
        self._name = _named(self._name, name)
        self._next = self._links.get(self._name)
        return self._next is not None

    def go(self, tokens: "array[int] | None", *, is_whole: bool = True) -> None:
        """Extend the chain by the piece that `meet` looked up. If that is not cached, `tokens` are required; if not
        `is_whole`, they are only its beginning.
        """
        link = self._next if is_whole else None
        if link is None:
            assert tokens is not None, "a piece that is not known has to be tokenised"
            link = self._link.then(tokens, self.ground.block_tokens)
            if is_whole:
                self._links.put(self._name, link, DIGEST_BYTES + NAME_BYTES + len(link.rest) + len(link.marks))
        self._link = link
        self._marks.append(link.marks)

    @property
    def tokens(self) -> int:
        return self._link.tokens

    def marked(self) -> "Marked":
        return Marked(self.root[:MARK_BYTES], b"".join(self._marks))


@dataclass(frozen=True, slots=True)
class Marked:
    root: bytes = field(repr=False)
    marks: bytes = field(repr=False)


def marks_of(digests: bytes) -> bytes:
    return b"".join([digests[offset : offset + MARK_BYTES] for offset in range(0, len(digests), DIGEST_BYTES)])


def _named(previous_name: bytes, piece: bytes) -> bytes:
    return blake2b(previous_name + piece, digest_size=NAME_BYTES).digest()
