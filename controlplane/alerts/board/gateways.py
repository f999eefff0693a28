"""What gateways do: how requests end there, what they add to them, where they send them and how right they are."""

from typing import Final

from controlplane.alerts.board.parts import GATEWAY, Panel, Query, Row, quantile, quantiles, rate, ratio, series

_PREDICTED, _CACHED, _PROMPT = (f"luminet_gateway_{one}_tokens_total" for one in ("predicted", "cached", "prompt"))


def _added(name: str, legend: str) -> tuple[Query, ...]:
    histogram = f"luminet_gateway_{name}_seconds"
    return series(
        quantile(0.5, histogram, GATEWAY), f"{legend} p50", quantile(0.95, histogram, GATEWAY), f"{legend} p95"
    )


def _engines(metric: str, how: str = "sum") -> tuple[Query, ...]:
    return series(f"{how} by (agent) (luminet_gateway_{metric}{{{GATEWAY}}})", "{{agent}}")


GATEWAYS: Final = Row(
    "Gateways and routing",
    (
        Panel(
            "Requests a second by model and outcome",
            "Refused: nobody took it. Broken: a stream that ended in an error. Left: the client did.",
            series(rate("luminet_gateway_requests_total", GATEWAY, "model", "outcome"), "{{model}} {{outcome}}"),
            "reqps",
            is_stacked=True,
        ),
        Panel(
            "Errors a second by reason",
            "That clients were told, by their code: docs/gateway.md.",
            series(rate("luminet_gateway_errors_total", GATEWAY, "reason"), "{{reason}}"),
            "reqps",
        ),
        Panel(
            "Retries a second by reason",
            "Attempts at an engine without an answer, after which another one was asked.",
            series(rate("luminet_gateway_retries_total", GATEWAY, "reason"), "{{reason}}"),
            "reqps",
        ),
        Panel(
            "What a gateway adds",
            "Routing: from a request's last byte until an engine is asked. Reading: of that, to look at the prompt.",
            (*_added("routing", "routing"), *_added("reading", "reading")),
            "s",
        ),
        Panel(
            "Time to an engine's headers by model",
            "From a request's last byte; with it a hit count is known.",
            quantiles("luminet_gateway_header_seconds", GATEWAY, "model"),
            "s",
        ),
        Panel(
            "Requests under way and waiting for a seat",
            "By engine; waiting: all engines that may serve it are full.",
            (
                *_engines("running_requests"),
                *series(f"sum(luminet_gateway_waiting_requests{{{GATEWAY}}})", "waiting"),
            ),
        ),
        Panel(
            "Refused by an organisation's limit, a second",
            "By the limit's name: docs/limits.md.",
            series(
                rate("luminet_gateway_limited_total", GATEWAY, "organisation", "limit"), "{{organisation}} {{limit}}"
            ),
            "reqps",
        ),
        Panel(
            "Cached tokens as foretold and as found",
            "Of prompts with a prediction. Apart: caches change faster than gateways hear.",
            series(ratio(_PREDICTED, _PROMPT, GATEWAY), "foretold", ratio(_CACHED, _PROMPT, GATEWAY), "found"),
            "percentunit",
            most=1,
        ),
        Panel(
            "Prompts a second by how much was known of them",
            "Whole: a growing chat, or a short prompt. Head: its first tokens. Unread: routed by load alone.",
            series(rate("luminet_gateway_prompts_read_total", GATEWAY, "outcome"), "{{outcome}}"),
            "reqps",
            is_stacked=True,
        ),
        Panel(
            "Share of requests an engine may get",
            "The least of all gateways: 0 while it fails, less than 1 while it comes back.",
            _engines("engine_share", "min"),
            "percentunit",
            most=1,
        ),
        Panel(
            "Blocks that engines are known to hold",
            "As gateways have it from their events.",
            _engines("index_blocks", "max"),
        ),
        Panel(
            "Isolation probes a second by what they said",
            "Anything but isolated needs a look: docs/canary.md.",
            series(rate("luminet_canary_rounds_total", GATEWAY, "agent", "outcome"), "{{agent}} {{outcome}}"),
            "short",
        ),
    ),
)
