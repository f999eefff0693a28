"""What the cache does: what it saves whom, why it misses, who is where in it, and what leaves it."""

from typing import Final

from controlplane.alerts.board.parts import ENGINE, TENANT, Panel, Row, rate, ratio, series

CACHED, PROMPT, MISSED = "luminet_cached_tokens_total", "luminet_prompt_tokens_total", "luminet_missed_tokens_total"
GONE: Final = "luminet_evicted_blocks_total"
DEVICE: Final = f'tier="device",{ENGINE}'


def _pool(what: str) -> str:
    return f"sum by (instance) (luminet_pool_{what}_bytes{{{DEVICE}}})"


CACHE: Final = Row(
    "Cache",
    (
        Panel(
            "Hit ratio by agent",
            "Cached of all prompt tokens that each engine was asked.",
            series(ratio(CACHED, PROMPT, TENANT, "instance"), "{{instance}}", ratio(CACHED, PROMPT, TENANT), "fleet"),
            "percentunit",
            most=1,
        ),
        Panel(
            "Hit ratio by namespace",
            "The exact numbers of 24 hours are in Luminet itself.",
            series(ratio(CACHED, PROMPT, TENANT, "organisation", "namespace"), "{{organisation}}/{{namespace}}"),
            "percentunit",
            most=1,
        ),
        Panel(
            "Prompt tokens a second by what became of them",
            "Cached ones are saved; of the others, why they were computed.",
            series(rate(CACHED, TENANT), "cached", rate(MISSED, TENANT, "reason"), "{{reason}}"),
            is_stacked=True,
        ),
        Panel(
            "Prompt tokens a second by namespace",
            "How much each asks.",
            series(rate(PROMPT, TENANT, "organisation", "namespace"), "{{organisation}}/{{namespace}}"),
            is_stacked=True,
        ),
        Panel(
            "Prompt tokens a second by KV format",
            "In which format their keys and values are kept.",
            series(rate(PROMPT, TENANT, "kv_dtype"), "{{kv_dtype}}"),
            is_stacked=True,
        ),
        Panel(
            "Resident bytes by namespace",
            "What each holds in the caches, on accelerators and hosts.",
            series(
                f"sum by (organisation, namespace, tier) (luminet_resident_bytes{{{TENANT}}})",
                "{{organisation}}/{{namespace}} {{tier}}",
            ),
            "bytes",
            is_stacked=True,
        ),
        Panel(
            "Pool by agent",
            "Held: by requests that run. Filled: what is idle in the cache counts, too; a warm one is full.",
            series(
                f"({_pool('used')} - {_pool('evictable')}) / {_pool('capacity')}",
                "{{instance}} held",
                f"{_pool('used')} / {_pool('capacity')}",
                "{{instance}} filled",
            ),
            "percentunit",
            most=1,
        ),
        Panel(
            "Blocks that left the cache, a second, by reason",
            "Expired: their time was over. Evicted: somebody needed the room. Quota: over their namespace's limit.",
            series(rate(GONE, TENANT, "reason"), "{{reason}}"),
        ),
        Panel(
            "Blocks evicted and expired, a second, by namespace",
            "Whose prefixes go before they are used again.",
            series(
                rate(GONE, f'reason="evicted",{TENANT}', "organisation", "namespace"),
                "{{organisation}}/{{namespace}} evicted",
                rate(GONE, f'reason="expired",{TENANT}', "organisation", "namespace"),
                "{{organisation}}/{{namespace}} expired",
            ),
        ),
    ),
)
