"""The first row: whether all is well and what the cache is worth, before anything is read."""

from typing import Final

from controlplane.alerts.board.parts import ENGINE, GATEWAY, TENANT, Row, quantile, rate, stat

_CACHED, _PROMPT = (f"sum(increase(luminet_{one}_tokens_total{{{TENANT}}}[$__range]))" for one in ("cached", "prompt"))
_ENDED = "luminet_gateway_requests_total"
_DONE = f'outcome=~"answered|left",{GATEWAY}'


def _pool(what: str) -> str:
    return f'sum(luminet_pool_{what}_bytes{{tier="device",{ENGINE}}})'


GLANCE: Final = Row(
    "At a glance",
    (
        stat(
            "Hit ratio",
            "Cached of all prompt tokens in the time that is looked at. A sample; the exact number is Luminet's own.",
            f"{_CACHED} / {_PROMPT}",
            "percentunit",
        ),
        stat("Tokens saved", "Prompt tokens that nobody had to compute, in the time that is looked at.", _CACHED),
        stat("Requests a second", "That engines ended.", rate("luminet_requests_total", TENANT), "reqps"),
        stat(
            "Time to the first token, p95",
            "Of all requests, whatever they found cached.",
            quantile(0.95, "luminet_time_to_first_token_seconds", ENGINE),
            "s",
        ),
        stat(
            "Requests that failed",
            "At gateways: nobody took them, or their stream broke off. Not those whose client left.",
            f"1 - {rate(_ENDED, _DONE)} / {rate(_ENDED, GATEWAY)}",
            "percentunit",
            bad_from=0.01,
        ),
        stat(
            "Pool held",
            "By requests that run, of all engines' pools. What is idle in the cache counts as free.",
            f"({_pool('used')} - {_pool('evictable')}) / {_pool('capacity')}",
            "percentunit",
            bad_from=0.9,
        ),
        stat(
            "Alerts that fire",
            "By Luminet's own rules: docs/alerts.md.",
            "sum(max by (rule) (luminet_alerts_firing))",
            bad_from=1,
        ),
        stat(
            "Processes that do not answer",
            "Of those that Prometheus asks.",
            'sum(1 - up{job=~"luminet-.*"})',
            bad_from=1,
        ),
        stat(
            "Agents that are not ready",
            "Engines and gateways that are starting, down, failed, draining or stale.",
            'sum(max by (kind, state) (luminet_agents{state!="ready"}))',
            bad_from=1,
        ),
        stat(
            "Agents out of sync",
            "They hold something else than they are to hold.",
            "sum(max by (kind) (luminet_agents_out_of_sync))",
            bad_from=1,
        ),
        stat(
            "Rollouts under way",
            "Running and paused.",
            "sum(max by (state) (luminet_rollouts))",
        ),
        stat(
            "Tokens by which numbers differ",
            "Engines, reports and windows, as last compared. Zero, or something is not counted as it should be.",
            "max(luminet_reconciliation_difference_tokens)",
            bad_from=1,
        ),
    ),
)
