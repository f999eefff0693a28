"""Whether the control plane reaches its fleet and hears of it, and what all processes take."""

from typing import Final

from controlplane.alerts.board.parts import Panel, Row, quantile, quantiles, rate, series

LUMINET: Final = 'job=~"luminet-.*"'

CONTROL_PLANE: Final = Row(
    "Fleet and control plane",
    (
        Panel(
            "Members by state",
            "Engines and gateways.",
            series("max by (kind, state) (luminet_agents) > 0", "{{kind}} {{state}}"),
            is_stacked=True,
        ),
        Panel(
            "Out of sync, and rollouts under way",
            "Members that hold something else than they are to hold, and what is being brought to them.",
            series(
                "max by (kind) (luminet_agents_out_of_sync)",
                "{{kind}}s out of sync",
                "max by (state) (luminet_rollouts)",
                "rollouts {{state}}",
            ),
        ),
        Panel(
            "Commands a second by what became of them",
            "Of sidecars: policies that were pushed, and what operators asked for.",
            series(rate("luminet_sidecar_commands_total", LUMINET, "outcome"), "{{outcome}}"),
        ),
        Panel(
            "Reports that wait for the control plane",
            "Spooled on disk at each member. Rising: the control plane does not take them.",
            series("max by (instance) (luminet_sidecar_spooled_reports)", "{{instance}}"),
        ),
        Panel(
            "Since the control plane answered a member",
            "How old its reports are at least.",
            series("time() - max by (instance) (luminet_sidecar_heard_timestamp_seconds)", "{{instance}}"),
            "s",
        ),
        Panel(
            "Clocks",
            "How far each member's is behind the control plane's.",
            series("max by (instance) (luminet_sidecar_clock_skew_seconds)", "{{instance}}"),
            "s",
            least=None,
        ),
        Panel(
            "Taken in, a second",
            "Reports by what they were, rows of usage, and heartbeats.",
            series(
                rate("luminet_agent_reports_total", LUMINET, "was"),
                "reports {{was}}",
                rate("luminet_usage_rows_total", LUMINET, "was"),
                "rows {{was}}",
                rate("luminet_agent_heartbeats_total", LUMINET),
                "heartbeats",
            ),
        ),
        Panel(
            "Time to write reports down",
            "Those that came together, in one commit.",
            quantiles("luminet_agent_commit_seconds", LUMINET),
            "s",
        ),
        Panel(
            "Lost",
            "Reports whose numbers agents skipped, and records of journals that could not be read. Zero is right.",
            series(
                "sum(luminet_agent_reports_lost_total)",
                "reports",
                "sum(luminet_usage_records_lost_total)",
                "records",
            ),
        ),
        Panel(
            "Alerts that fire, by rule",
            "As the control plane evaluates its rules; own: those that people made.",
            series("max by (rule) (luminet_alerts_firing)", "{{rule}}"),
        ),
        Panel(
            "Alerts that Prometheus has",
            "Pending and firing, by its own rules; which, its page of alerts says.",
            series('count(ALERTS{alertname=~"Luminet.*"}) or vector(0)', "pending and firing"),
        ),
        Panel(
            "Tokens by which numbers differ",
            "Engines and ledger, ledger and minutes, minutes and pieces: docs/operations.md#reconciliation.",
            series("max by (between) (luminet_reconciliation_difference_tokens)", "{{between}}"),
        ),
        Panel(
            "Web requests a second by status",
            "Pages, REST and agents.",
            series(rate("luminet_http_requests_total", LUMINET, "status"), "{{status}}"),
            "reqps",
            is_stacked=True,
        ),
        Panel(
            "Web: time to headers",
            "Of pages and REST; the slowest routes by their 95th percentile.",
            series(
                f"topk(5, {quantile(0.95, 'luminet_http_request_seconds', LUMINET, 'route')})",
                "{{route}}",
            ),
            "s",
        ),
        Panel(
            "Pages that are open, and webhooks that wait",
            "Live sockets, and messages about alerts that nobody has taken yet.",
            series(
                "sum(luminet_live_sockets)",
                "live sockets",
                "max(luminet_alert_deliveries_waiting)",
                "webhooks",
            ),
        ),
        Panel(
            "Memory by process",
            "Resident. An engine's weights and pool on an accelerator are not in it.",
            series(f"max by (job, instance) (process_resident_memory_bytes{{{LUMINET}}})", "{{job}} {{instance}}"),
            "bytes",
        ),
        Panel(
            "Processors by process",
            "Cores in use.",
            series(rate("process_cpu_seconds_total", LUMINET, "job", "instance"), "{{job}} {{instance}}"),
        ),
        Panel(
            "Journals on disk",
            "What engines have counted and sidecars have yet to read off.",
            series("max by (instance) (luminet_journal_bytes)", "{{instance}}"),
            "bytes",
        ),
    ),
)
