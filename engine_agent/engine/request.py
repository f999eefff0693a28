"""A request in the engine: its prompt, its branches (choices or beams), and their states.

waiting ── admitted ──▶ running ── every branch finished ──▶ done
   ▲                      │
   └──── preempted ◀──────┘     generated tokens are kept, their keys and values are recomputed
"""

from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from typing import Literal, Protocol

from engine_agent.cache.manager import Admitted
from engine_agent.cache.sequences import Sequence
from engine_agent.engine.beams import BeamSearch
from engine_agent.engine.detokenizer import Detokenizer
from engine_agent.engine.errors import RequestError
from engine_agent.engine.outputs import Admission, Delta, FinishReason
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.sampler import Sampler
from engine_agent.engine.stops import StopStrings

State = Literal["waiting", "running", "done"]


class Sink(Protocol):
    """Receives a job's outputs. Called by the engine's thread between two steps."""

    def admitted(self, prompt: int, admission: Admission) -> None: ...

    def delta(self, delta: Delta) -> None: ...

    def failed(self, error: RequestError) -> None:
        """End the job with an error; no further outputs follow."""

    def finished(self) -> None:
        """End the job: all choices are complete."""


@dataclass(slots=True, eq=False)
class Branch:
    """One choice or one beam. `sequence` is None while its request waits, and after its end."""

    choice: int
    sampler: Sampler
    text: Detokenizer
    stops: StopStrings
    generated: list[int] = field(default_factory=list)
    sequence: Sequence | None = None
    finish: FinishReason | None = None

    @property
    def left_tokens(self) -> int:
        """Return how many tokens of its sequence are still to be computed."""
        assert self.sequence is not None
        return len(self.sequence.tokens) - self.sequence.filled_tokens

    def say(self, token: int) -> tuple[str, str | None]:
        """Add a token. Return the text that is certain now, and the stop string that ends the choice, if any."""
        return self.stops.push(self.text.push(token))

    def rest_or_stop(self) -> tuple[str, str | None]:
        """Return the pending text when nothing follows, and the stop string that its last letters complete."""
        text, matched = self.stops.push(self.text.finish())
        return (text, matched) if matched is not None else (text + self.stops.finish(), None)

    def rest(self) -> str:
        return self.rest_or_stop()[0]


@dataclass(slots=True, eq=False)
class Request:
    """One prompt of a job."""

    job: "Job"
    place: int  # index of the prompt in the job
    namespace: str
    prompt: Listed[int]
    kv_format: str
    asked_format: str | None
    salt: bytes
    ttl_seconds: float | None
    params: SamplingParams
    most_tokens: int  # that each choice may generate; 0: only the prompt is computed
    priority: int
    arrived: float
    elsewhere_tokens: int  # the longest match of its prompt that is known at another engine
    branches: list[Branch]
    search: BeamSearch | None = None
    state: State = "waiting"
    answer: Admitted | None = None  # of its first admission
    admission: Admission | None = None  # reported when all its blocks are loaded
    is_ready: bool = False  # no load is pending for its blocks
    waiting: Sequence | None = None  # in the waiting room
    preemptions: int = 0
    held_since: float = 0.0  # when it was preempted
    returning: Sequence | None = None  # including its generated tokens, until it is in the waiting room again

    @property
    def rank(self) -> tuple[float, ...]:
        return (self.priority, self.arrived, self.place)

    @property
    def live(self) -> list[Branch]:
        return [branch for branch in self.branches if branch.finish is None]

    @property
    def first_choice(self) -> int:
        return self.place * self.params.n

    def choice(self, branch: Branch) -> int:
        """Return the choice's number for the client: those of the second prompt follow those of the first."""
        return self.first_choice + branch.choice

    @property
    def seats(self) -> int:
        """Return how many seats in the batch its answers take. The engine's own probe takes none."""
        if self.job.kind == "probe":
            return 0
        return self.params.n if self.search else len(self.live)

    def blocks(self, block_tokens: int) -> int:
        """Return how many blocks the request needs with all it generated: the prompt once, and each answer its own."""
        shared = len(self.prompt) // block_tokens
        own_blocks = [
            -(-(len(self.prompt) + len(branch.generated) + 1) // block_tokens) - shared for branch in self.live
        ]
        return shared + sum(own_blocks)

    @property
    def is_counted(self) -> bool:
        """Return whether the tokens count for the namespace; those of a probe and a pin's warm-up do not."""
        return self.job.kind == "customer"

    @property
    def is_split(self) -> bool:
        """Return whether each live branch has its own sequence."""
        return all(branch.sequence for branch in self.live)

    def kept_tokens(self) -> list[int]:
        """Return the generated tokens that follow the prompt in its first sequence when it returns.

        Of several branches, each gets its own after the prompt is computed; until then they share it.
        """
        return self.live[0].generated if len(self.live) == 1 else []


@dataclass(slots=True, eq=False)
class Job:
    """A client's request: one or several prompts, which begin, end and fail together."""

    request_id: str
    kind: str
    sink: Sink
    ends_at: float  # by the engine's clock
    requests: list[Request] = field(default_factory=list)
    is_over: bool = False
