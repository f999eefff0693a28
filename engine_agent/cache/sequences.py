"""One request in the cache: its tokens, the digests of its full blocks, and its block table."""

from array import array
from dataclasses import replace
from typing import Literal

from engine_agent.cache.books import Hold, Namespace
from engine_agent.cache.errors import SequenceReleased
from engine_agent.cache.index import Chain, Kinship
from engine_agent.cache.keys import ChainIdentity, Digest, Digests, block_keys, chain_root, packed_tokens

State = Literal["new", "admitted", "released"]


class Sequence:
    """A request in the cache. `pages[i]` is the page of block i.

    Code that reads or writes K and V must take the table again in each step, because it may change.
    """

    __slots__ = (
        "cached_tokens",
        "cap_seconds",
        "chain",
        "filled_tokens",
        "hold",
        "identity",
        "is_counted",
        "owner",
        "pages",
        "state",
        "tokens",
    )

    def __init__(self, owner: Namespace, tokens: "array[int]", identity: ChainIdentity, *, cap_seconds: float) -> None:
        self.tokens = tokens
        self.cap_seconds = cap_seconds
        self.pages: list[int] = []
        self.filled_tokens = 0  # tokens with K and V in the pages
        self.cached_tokens = 0  # fixed at admission
        self.is_counted = False
        self.state: State = "new"
        self.hold: Hold | None = None
        self.identity = identity
        self.owner = owner
        root = chain_root(owner.key, identity)
        digests = block_keys(root, packed_tokens(tokens), identity.block_tokens)
        self.chain = Chain(root, Kinship(identity.model_revision, identity.salt), identity.kv_format, digests)

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    @property
    def kv_format(self) -> str:
        return self.identity.kv_format

    @property
    def matchable_blocks(self) -> int:
        """Return how many blocks can match. The last token is always computed, so that there is one to sample from."""
        return (len(self.tokens) - 1) // self.identity.block_tokens

    def blocks_for(self, more_tokens: int = 0) -> int:
        return -(-(len(self.tokens) + more_tokens) // self.identity.block_tokens)

    def rekey(self, owner: Namespace) -> None:
        """Rehash after the namespace got another key while the request waited."""
        self.owner = owner
        self.identity = replace(self.identity, epoch=owner.epoch)
        root = chain_root(owner.key, self.identity)
        self.chain.root = root
        self.chain.digests = self.digests_under(root, len(self.tokens) // self.identity.block_tokens)

    def digests_under(self, root: Digest, blocks: int) -> Digests:
        """Return the digests of the sequence's first blocks under this root."""
        width = self.identity.block_tokens
        return block_keys(root, packed_tokens(self.tokens[: blocks * width]), width)

    def append(self, tokens: "array[int]") -> None:
        self.tokens += tokens
        chain, width = self.chain, self.identity.block_tokens
        known_blocks = len(chain.digests)
        if len(self.tokens) // width > known_blocks:
            parent = chain.digests[-1] if known_blocks else chain.root
            chain.digests += block_keys(parent, packed_tokens(self.tokens[known_blocks * width :]), width)

    def copy(self, hold: Hold) -> "Sequence":
        """Return a sequence with a second table of the same pages."""
        duplicate = Sequence.__new__(Sequence)
        for name in self.__slots__:
            setattr(duplicate, name, getattr(self, name))
        duplicate.tokens, duplicate.chain, duplicate.pages = self.tokens[:], replace(self.chain), self.pages.copy()
        duplicate.hold = hold
        return duplicate

    def held(self, verb: str) -> Hold:
        """Return the lease. Raises SequenceReleased before admission and after release."""
        if self.hold is None or self.state != "admitted":
            raise SequenceReleased(self.state, verb=verb)
        return self.hold
