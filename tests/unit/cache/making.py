"""The least that works: managers, prompts, and requests that run from start to end."""

from collections.abc import Sequence as Tokens
from random import Random

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.storage import Storage
from tests.unit.cache.clocks import HandClock

BLOCK = 4
PAGE = 100
KEY = bytes(range(32))


class World:
    """A manager with a clock that stands until a test moves it, and one namespace, `acme`."""

    def __init__(
        self,
        *,
        pages: int = 64,
        host_pages: int = 0,
        device: Storage | None = None,
        limits: CacheLimits | None = None,
        policy: NamespacePolicy | None = None,
        page_bytes: dict[str, int] | None = None,
    ) -> None:
        sizes = page_bytes or {"fp8": PAGE}
        self.clock = HandClock()
        self.device = device or Arena(pages * PAGE, sizes, slab_bytes=None if page_bytes else PAGE)
        host = Arena(host_pages * PAGE, sizes, slab_bytes=PAGE, tier="host") if host_pages else None
        self.manager = BlockManager(
            self.device, host, clock=self.clock, block_tokens=BLOCK, limits=limits, boot="boot-1"
        )
        self.namespace("acme", policy or NamespacePolicy())

    def namespace(self, name: str, policy: NamespacePolicy, *, epoch: int = 1) -> None:
        self.manager.set_namespace(name, key=key_of(name, epoch), epoch=epoch, policy=policy)

    def sequence(
        self, tokens: Tokens[int], name: str = "acme", *, kv_format: str = "fp8", salt: bytes = b"",
        ttl_seconds: float | None = None,
    ) -> Sequence:  # fmt: skip
        return self.manager.sequence(
            name, tokens, kv_format=kv_format, model_revision="m", salt=salt, ttl_seconds=ttl_seconds
        )

    def start(self, tokens: Tokens[int], name: str = "acme", *, kv_format: str = "fp8", salt: bytes = b"",
              ttl_seconds: float | None = None) -> tuple[Sequence, Admitted]:  # fmt: skip
        """Admitted and filled, still running."""
        sequence = self.sequence(tokens, name, kv_format=kv_format, salt=salt, ttl_seconds=ttl_seconds)
        answer = self.manager.admit(sequence)
        assert isinstance(answer, Admitted), answer
        self.manager.fill(sequence, len(sequence.tokens))
        return sequence, answer

    def run(self, tokens: Tokens[int], name: str = "acme", *, kv_format: str = "fp8", salt: bytes = b"",
            ttl_seconds: float | None = None) -> Admitted:  # fmt: skip
        """From admission to release, at one moment."""
        sequence, answer = self.start(tokens, name, kv_format=kv_format, salt=salt, ttl_seconds=ttl_seconds)
        self.manager.release(sequence)
        self.check()
        return answer

    def cached_blocks(self, tokens: Tokens[int], name: str = "acme", *, kv_format: str = "fp8") -> int:
        """How many blocks a prompt would find now. Renews nothing."""
        sequence = self.sequence(tokens, name, kv_format=kv_format)
        found = self.manager.cache.match(sequence.owner, sequence.chain, len(sequence.tokens) // BLOCK)
        return found.depth

    def random_step(self, step: int, chance: Random, running: list[Sequence], name: str) -> None:
        """Admit a random prompt of this namespace, perhaps release another one, let time pass, purge now and then."""
        tokens = [*prompt(chance.randint(0, 3), extra=0), *prompt(chance.randint(0, 3), seed=chance.randint(1, 4))]
        sequence = self.sequence(tokens, name)
        if isinstance(self.manager.admit(sequence), Admitted):
            self.manager.fill(sequence, chance.randint(sequence.filled_tokens, len(tokens)))
            running.append(sequence)
        if running and chance.random() < 0.9:
            self.manager.release(running.pop(chance.randrange(len(running))))
        self.clock.advance(chance.choice([0, 0.5, 5]))
        if step % 97 == 96:
            epoch = self.manager.cache.namespace(name).epoch + 1
            self.manager.purge(name, key=key_of(name, epoch), epoch=epoch)

    def check(self) -> None:
        problems = self.manager.check_integrity()
        assert not problems, problems


def key_of(name: str, epoch: int) -> bytes:
    return (name.encode() + bytes([epoch])).ljust(32, b"\0")


def prompt(blocks: int, *, seed: int = 0, extra: int = 1) -> list[int]:
    """Whole blocks and some tokens more, so that every whole block can match; another seed shares no block."""
    return [seed * 100_000 + i for i in range(blocks * BLOCK + extra)]
