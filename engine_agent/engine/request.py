"""A request under way: its prompt, its branches (choices or beams), and where each of them is.

waiting ── admitted ──▶ running ── every branch finished ──▶ done
   ▲                      │
   └──── preempted ◀──────┘     what was generated is kept, its keys and values are computed again
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
    """Where a job's outputs go. Called by the engine's thread, between two steps."""

    def admitted(self, prompt: int, admission: Admission) -> None: ...

    def delta(self, delta: Delta) -> None: ...

    def failed(self, error: RequestError) -> None:
        """The job's end, instead of what its choices still owe."""

    def finished(self) -> None:
        """The job's end: every choice has said its last."""


@dataclass(slots=True, eq=False)
class Branch:
    """One choice, or one beam. `sequence` is None while its request waits, and where it has ended."""

    choice: int
    sampler: Sampler
    text: Detokenizer
    stops: StopStrings
    generated: list[int] = field(default_factory=list)
    sequence: Sequence | None = None
    finish: FinishReason | None = None

    @property
    def left_tokens(self) -> int:
        """Of its sequence, to be computed."""
        assert self.sequence is not None
        return len(self.sequence.tokens) - self.sequence.filled_tokens

    def say(self, token: int) -> tuple[str, str | None]:
        """What can be said now that this token is known, and the stop string that ends it, if one does."""
        return self.stops.push(self.text.push(token))

    def rest_or_stop(self) -> tuple[str, str | None]:
        """What was held back, when nothing follows, and the stop string that its last letters complete."""
        text, matched = self.stops.push(self.text.finish())
        return (text, matched) if matched is not None else (text + self.stops.finish(), None)

    def rest(self) -> str:
        return self.rest_or_stop()[0]


@dataclass(slots=True, eq=False)
class Request:
    """One prompt of a job."""

    job: "Job"
    place: int  # which of the job's prompts
    namespace: str
    prompt: Listed[int]
    kv_format: str
    asked_format: str | None
    salt: bytes
    ttl_seconds: float | None
    params: SamplingParams
    most_tokens: int  # that each choice may generate; 0: the prompt is computed, and that is all
    priority: int
    arrived: float
    elsewhere_tokens: int  # of its prompt, the longest match that is known at another engine
    branches: list[Branch]
    search: BeamSearch | None = None
    state: State = "waiting"
    answer: Admitted | None = None  # the block manager's, of its first admission
    admission: Admission | None = None  # told when its blocks are all there
    is_ready: bool = False  # nothing is on its way to its blocks any more
    waiting: Sequence | None = None  # in the waiting room
    preemptions: int = 0
    held_since: float = 0.0  # when it gave its blocks back
    returning: Sequence | None = None  # with what it generated, until it is in the waiting room again

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
        """As the client numbers them: those of the second prompt follow those of the first."""
        return self.first_choice + branch.choice

    @property
    def seats(self) -> int:
        """Answers it has in the batch, or will have. The engine's own probe needs none."""
        if self.job.kind == "probe":
            return 0
        return self.params.n if self.search else len(self.live)

    def blocks(self, block_tokens: int) -> int:
        """What it takes with everything it has generated: the prompt once, and of each answer its own."""
        shared = len(self.prompt) // block_tokens
        own = [-(-(len(self.prompt) + len(branch.generated) + 1) // block_tokens) - shared for branch in self.live]
        return shared + sum(own)

    @property
    def is_counted(self) -> bool:
        """Whether its tokens are its namespace's: a probe's and a pin's warm-up are nobody's."""
        return self.job.kind == "customer"

    @property
    def is_split(self) -> bool:
        """Whether each live branch has a sequence of its own."""
        return all(branch.sequence for branch in self.live)

    def kept_tokens(self) -> list[int]:
        """Of what was generated, what follows the prompt in its first sequence when it comes back. Where there are
        several branches each gets its own after the prompt is computed: until then they share it."""
        return self.live[0].generated if len(self.live) == 1 else []


@dataclass(slots=True, eq=False)
class Job:
    """What a client asked for in one go: one prompt or several, which begin, end and fail together."""

    request_id: str
    kind: str
    sink: Sink
    ends_at: float  # of the engine's clock
    requests: list[Request] = field(default_factory=list)
    is_over: bool = False
