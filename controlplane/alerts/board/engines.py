"""What engines do: requests, how they end, how fast, and what they are short of."""

from typing import Final

from controlplane.alerts.board.parts import ENGINE, TENANT, Panel, Row, quantiles, rate, series

ENDED: Final = "luminet_requests_total"

ENGINES: Final = Row(
    "Engines",
    (
        Panel(
            "Requests a second by model and outcome",
            "As engines ended them.",
            series(rate(ENDED, TENANT, "model", "outcome"), "{{model}} {{outcome}}"),
            "reqps",
            is_stacked=True,
        ),
        Panel(
            "Requests a second by agent",
            "Where they went.",
            series(rate(ENDED, TENANT, "instance"), "{{instance}}"),
            "reqps",
            is_stacked=True,
        ),
        Panel(
            "Errors a second by model, agent and reason",
            "Refused before an answer, or told as a stream's last event.",
            series(
                rate("luminet_request_errors_total", ENGINE, "model", "instance", "reason"),
                "{{model}} {{instance}} {{reason}}",
            ),
            "reqps",
        ),
        Panel(
            "Time to the first token, by what was cached",
            "Hit: every full block of the prompt; partial: some; miss: none.",
            quantiles("luminet_time_to_first_token_seconds", ENGINE, "cache"),
            "s",
        ),
        Panel(
            "Time to the first token by agent",
            "An agent that is slower than the others has more to do, or less to do it with.",
            quantiles("luminet_time_to_first_token_seconds", ENGINE, "instance"),
            "s",
        ),
        Panel(
            "Time between two tokens",
            "Of one answer, while it is made.",
            quantiles("luminet_inter_token_latency_seconds", ENGINE, "model"),
            "s",
        ),
        Panel(
            "Requests running and waiting",
            "At each engine.",
            series(
                f"sum by (instance) (luminet_requests_running{{{ENGINE}}})",
                "{{instance}} running",
                f"sum by (instance) (luminet_requests_waiting{{{ENGINE}}})",
                "{{instance}} waiting",
            ),
        ),
        Panel(
            "Tokens a second",
            "Computed: of prompts and answers, what went through the model. Generated: what clients got.",
            series(
                rate("luminet_computed_tokens_total", ENGINE, "instance"),
                "{{instance}} computed",
                rate("luminet_generated_tokens_total", ENGINE, "instance"),
                "{{instance}} generated",
            ),
        ),
        Panel(
            "What engines warn of, a second",
            "Preemption: a request gave its blocks back and is computed again. Answer cut: one ended for want of room.",
            series(rate("luminet_engine_warnings_total", ENGINE, "instance", "reason"), "{{instance}} {{reason}}"),
        ),
    ),
)
