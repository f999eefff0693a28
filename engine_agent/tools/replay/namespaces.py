"""Assign requests to namespaces: distribute conversations, select one namespace, and add a flooder."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from engine_agent.contracts.words import listed
from engine_agent.tools.errors import ToolError
from engine_agent.tools.replay.trace import LARGEST_ID, Request

FLOODER = "flooder"
FIRST_FLOOD_ID = (LARGEST_ID + 1) // 2
MOST_FLOOD_REQUESTS = 10_000_000
SHOWN_NAMES = 10


def split(requests: Sequence[Request], count: int) -> list[Request]:
    """Assign each conversation to one of `namespace-0` … by its id, so that all of its turns share a namespace."""
    shared = shared_ids(requests)
    return [replace(request, namespace=f"namespace-{conversation(request, shared) % count}") for request in requests]


def shared_ids(requests: Sequence[Request]) -> set[int]:
    """Return the blocks that most requests share, such as a common system prompt."""
    counts = Counter(hash_id for request in requests for hash_id in request.hash_ids)
    return {hash_id for hash_id, count in counts.items() if count > len(requests) / 2}


def conversation(request: Request, shared: set[int]) -> int:
    """Return the conversation's id: the first hash id in which the request differs from most others."""
    ids = request.hash_ids
    skipped = sum(1 for _ in takewhile(shared.__contains__, ids))
    return ids[min(skipped, len(ids) - 1)] if ids else 0


def only(requests: Sequence[Request], namespace: str) -> list[Request]:
    matching = [request for request in requests if request.namespace == namespace]
    if not matching:
        raise ToolError("--only", f"{namespace} has no requests; there are {_names(requests)}")
    return matching


def flooded(requests: Sequence[Request], times: float, *, block_tokens: int) -> list[Request]:
    """Add a flooder: `times` as many requests, evenly spaced, all new, each with the mean number of whole blocks."""
    if FLOODER in namespaces_of(requests):
        raise ToolError("--flood", f"the trace has a namespace called {FLOODER}")
    count = round(times * len(requests))
    if count > MOST_FLOOD_REQUESTS:
        raise ToolError("--flood", f"{count:,} requests, expected at most {MOST_FLOOD_REQUESTS:,}")
    blocks = max(1, sum(request.input_tokens for request in requests) // len(requests) // block_tokens)
    began, ended = requests[0].at_seconds, requests[-1].at_seconds
    flood = [
        Request(
            at_seconds=began + (ended - began) * number / count,
            input_tokens=blocks * block_tokens,
            output_tokens=0,
            hash_ids=array("Q", range(FIRST_FLOOD_ID + number * blocks, FIRST_FLOOD_ID + (number + 1) * blocks)),
            namespace=FLOODER,
        )
        for number in range(count)
    ]
    return sorted([*requests, *flood], key=lambda request: request.at_seconds)


def namespaces_of(requests: Sequence[Request]) -> list[str]:
    """Return the namespaces by name, with numbers in numeric order."""
    return sorted({request.namespace for request in requests}, key=lambda name: (len(name), name))


def _names(requests: Sequence[Request]) -> str:
    return listed(namespaces_of(requests), SHOWN_NAMES)
