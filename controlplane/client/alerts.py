"""The commands for alerts (`get alerts`, `acknowledge`, `silence`) and for the rules that raise them."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import click

from controlplane.client import amounts
from controlplane.client.asking import agreed
from controlplane.client.changing import SECRET, given, only_one, secret_show
from controlplane.client.command import Session, at_most_one, rest_command, together, yes_option
from controlplane.client.errors import ClientError
from controlplane.client.places import organisation_read
from controlplane.client.rest import Rest, segment
from controlplane.client.shapes import shaped

RULES: Final = "/alert-rules"
METRICS: Final = (
    "pool_use", "hit_ratio", "evictions", "preemptions", "silence", "drift", "disk_wait", "clock_skew",
    "reconciliation", "reconciliation_age", "audit_anchors", "audit_anchor_age", "isolation",
    "isolation_timing", "integrity", "refused_rows",
)  # fmt: skip
COLUMNS: Final = {
    "STATE": "state",
    "PLACE": "place",
    "RULE": "rule",
    "WHAT": "words",
    "SINCE": "since",
    "SEEN BY": "acknowledged",
    "SILENT UNTIL": "silenced_until",
    "ID": "id",
}
AN_ALERT = {"id": str, "place": str, "rule": str, "state": str}
A_LISTED_ALERT = dict.fromkeys(COLUMNS.values(), object)
A_RULE = {"id": str, "name": str, "place": str, "metric": str}
condition_options = together(
    click.option("--clears-at", type=amounts.number, help="how far back it has to come"),
    click.option("--for", "for_seconds", type=amounts.span, help="how long before it fires"),
    click.option("--webhook", "webhook_url", metavar="URL", help="who is told, by https"),
)
alert_argument = click.argument("alert", metavar="ID", help="luminet get alerts shows it")


def alerts(session: Session, scope: str | None, limit: int | None) -> None:
    """Print alerts, newest first; only one organisation's if it is named."""
    org = None if scope is None else organisation_read(scope).organisation
    alert_records = list(islice(session.rest.pages("/alerts", org=org), limit))
    if session.is_json(alert_records):
        return
    shaped(alert_records, [A_LISTED_ALERT])
    rows = [[_cell(alert, field) for field in COLUMNS.values()] for alert in alert_records]
    empty = "There is no alert. By which rules there would be one: luminet get alert-rules"
    session.paper.table(list(COLUMNS), rows, empty=empty)


def _cell(alert: Mapping[str, Any], field: str) -> Any:
    value = alert[field]
    return shaped(value, {"by": str})["by"] if field == "acknowledged" and value is not None else value


@rest_command
@alert_argument
@click.option("--note", default="", help="what is being done about it")
def acknowledge(session: Session, alert: str, note: str) -> None:
    updated = _told(session.rest, alert, "acknowledge", {"note": note})
    session.show(updated, f"{updated['place']}: seen. It stays {updated['state']} until it is over.")


@at_most_one("--for", "--until", "--end", required=True)
@rest_command
@alert_argument
@click.option("--for", "seconds", type=amounts.span, help="30m, 12h, 7d")
@click.option("--until", type=amounts.expiry, metavar="WHEN", help="a time such as 2027-01-31T23:59:59Z")
@click.option("--end", is_flag=True, help="of the silence there is")
def silence(session: Session, alert: str, seconds: int | None, until: str | None, end: bool) -> None:
    body = {"until": until} if until else {"seconds": 0 if end else seconds}
    updated = shaped(_told(session.rest, alert, "silence", body), {**AN_ALERT, "silenced_until": object})
    words = "webhooks are told of it again" if end else f"silent until {updated['silenced_until']}"
    session.show(updated, f"{updated['place']}: {words}.")


def _told(rest: Rest, alert: str, action: str, body: Mapping[str, Any]) -> Any:
    return shaped(rest.post(f"/alerts/{segment(alert)}/{action}", body).body, AN_ALERT)


@at_most_one("--above", "--below", required=True)
@rest_command
@click.argument("name", help="what it is for")
@click.option("--metric", required=True, type=click.Choice(METRICS), help="what is measured")
@click.option("--above", type=amounts.number, help="fires above it, in the metric's unit")
@click.option("--below", type=amounts.number, help="fires below it")
@click.option("--place", help="fleet, acme or acme/chat; else all that is yours")
@click.option("--group", metavar="SLUG", help="only this agent group, for operators")
@condition_options
@click.option("--clear-for", "clear_for_seconds", type=amounts.span, help="a minute, else")
@click.option("--least-prompt-tokens", type=amounts.count, help="in 15 minutes, to know anything")
def create_alert_rule(
    session: Session, name: str, metric: str, above: float | None, below: float | None, **options: Any
) -> None:
    """Create a rule. If it has a webhook, standard output gets only the webhook's secret."""
    comparison, threshold = ("below", below) if above is None else ("above", above)
    body = {"name": name, "metric": metric, "comparison": comparison, "threshold": threshold, **given(**options)}
    created = shaped(session.rest.post(RULES, body).body, {**A_RULE, "webhook_secret": SECRET})
    words = f"{created['name']} watches {created['metric']} of {created['place']}"
    if not options["webhook_url"]:
        session.show(created, f"{words}.")
        return
    message = f"{words}. Its webhooks are signed with this secret, which is shown now and never again:"
    again = f"Alert rule {created['name']}", f"luminet delete alert-rule {created['id']}"
    secret_show(session, created, message, created["webhook_secret"], again=again)


@rest_command
@click.argument("rule", help="its id, its name, or what a built-in one is called")
@click.option("--threshold", type=amounts.number)
@condition_options
@click.option("--on/--off", "enabled", default=None, help="evaluate it, or do not: then what fires is over")
def set_alert_rule(session: Session, rule: str, **options: Any) -> None:
    """Change only the fields that are given."""
    body = given(**options)
    if not body:
        raise ClientError("say what is to change: --threshold, --clears-at, --for, --on, --off or --webhook")
    path = f"{RULES}/{segment(_rule(session.rest, rule)['id'])}"
    updated = shaped(session.rest.ask("PATCH", path, body).body, {**A_RULE, "webhook_secret": SECRET})
    if updated["webhook_secret"] is None:  # the webhook stays as it was; a PATCH is never repeated
        session.show(updated, f"{updated['name']} is changed.")
        return
    message = f"{updated['name']} is changed. Its webhooks are signed with this secret, shown now and never again:"
    again = f"Alert rule {updated['name']}", f"luminet delete alert-rule {updated['id']}"
    secret_show(session, updated, message, updated["webhook_secret"], again=again)


@rest_command
@click.argument("rule", help="its id or its name")
@yes_option
def delete_alert_rule(session: Session, rule: str, yes: bool) -> None:
    alert_rule = _rule(session.rest, rule)
    agreed(f"This deletes the alert rule {alert_rule['name']} of {alert_rule['place']}", alert_rule["name"], yes=yes)
    session.rest.delete(f"{RULES}/{segment(alert_rule['id'])}")
    session.show(alert_rule, f"{alert_rule['name']} is deleted. What it found stays in the history.")


def _rule(rest: Rest, name: str) -> Any:
    """Return the rule with this id, name or built-in name."""
    rules = [shaped(row, {**A_RULE, "built_in": object}) for row in rest.pages(RULES)]
    return only_one(
        [candidate for candidate in rules if name in (candidate["id"], candidate["name"], candidate["built_in"])],
        "alert rule",
    )
