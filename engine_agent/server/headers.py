"""Response headers with a request's cache result."""

from engine_agent.http.headers import COUNTED
from engine_agent.journal.records import Opened


def counted_headers(opened: Opened, agent_id: str) -> list[tuple[str, str]]:
    """Return the headers of an admitted request, from the journal's record."""
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
    """Return the percentage with one decimal, rounded down. In integers: with floats, 0.29 · 100 would be 28.9."""
    tenths = part * 1_000 // whole if whole else 0
    return f"{tenths // 10}.{tenths % 10}"
