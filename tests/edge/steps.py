"""What a client on a raw socket can do, as values that cases are made of."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

PAUSE_SECONDS: Final = 0.05  # long enough for what was sent to be read by itself
DRIP_SECONDS: Final = 0.25

# What becomes of the connection; left: the client closes it; left open: nobody did.
End = Literal["closes", "stays", "resets", "left", "left open"]


class Act(Enum):
    ANSWERED = "wait for one more whole answer"
    CONTINUED = "wait for 100 Continue"
    PAUSE = "say nothing for a moment"
    FIN = "say no more, and listen"
    RESET = "close with a reset"


@dataclass(frozen=True, slots=True)
class Drip:
    """Sent again and again, until the server says something or closes."""

    data: bytes


Step = bytes | Act | Drip
ANSWERED, CONTINUED, PAUSE, FIN, RESET = Act.ANSWERED, Act.CONTINUED, Act.PAUSE, Act.FIN, Act.RESET
