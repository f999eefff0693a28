"""What the cache was worth to a request, in headers."""

from engine_agent.http.headers import COUNTED
from engine_agent.journal.records import Opened


def counted_headers(opened: Opened, agent_id: str) -> list[tuple[str, str]]:
    """Of an admitted request: the journal's record, in headers."""
    values = (
        percent(opened.cached_tokens, opened.prompt_tokens),
        str(opened.cached_tokens),
        str(opened.prompt_tokens),
        opened.kv_dtype,
        opened.namespace,
        str(opened.policy_revision),
        opened.miss_reason,
        agent_id,
    )
    return list(zip(COUNTED, values, strict=True))


def percent(part: int, whole: int) -> str:
    """With one decimal, rounded down: in integers, or 0.29 · 100 would be 28.9."""
    tenths = part * 1_000 // whole if whole else 0
    return f"{tenths // 10}.{tenths % 10}"
