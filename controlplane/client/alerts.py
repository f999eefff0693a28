"""`get alerts`, `acknowledge`, `silence`, and rules: what is wrong with the numbers, and who looks after it."""

import argparse
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from controlplane.client.asking import agreed
from controlplane.client.changing import SECRET, given, made_told, only_one, secret_told
from controlplane.client.errors import ClientError
from controlplane.client.places import organisation_read
from controlplane.client.rest import Rest, segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import Paper

RULES: Final = "/alert-rules"
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


def alerts(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """Newest first; of one organisation where that is named."""
    org = None if options.place is None else organisation_read(options.place).organisation
    found = list(islice(rest.pages("/alerts", org=org), options.limit))
    if options.json:
        paper.json(found)
        return 0
    shaped(found, [A_LISTED_ALERT])
    rows = [[_cell(one, field) for field in COLUMNS.values()] for one in found]
    paper.table(
        list(COLUMNS), rows, empty="There is no alert. By which rules there would be one: luminet get alert-rules"
    )
    return 0


def _cell(alert: Mapping[str, Any], field: str) -> Any:
    value = alert[field]
    return shaped(value, {"by": str})["by"] if field == "acknowledged" and value is not None else value


def acknowledge(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    done = _told(rest, options.alert, "acknowledge", {"note": options.note})
    return made_told(options, paper, done, f"{done['place']}: seen. It stays {done['state']} until it is over.")


def silence(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    body = {"until": options.until} if options.until else {"seconds": 0 if options.end else options.seconds}
    done = shaped(_told(rest, options.alert, "silence", body), {**AN_ALERT, "silenced_until": object})
    words = "webhooks are told of it again" if options.end else f"silent until {done['silenced_until']}"
    return made_told(options, paper, done, f"{done['place']}: {words}.")


def _told(rest: Rest, alert: str, deed: str, body: Mapping[str, Any]) -> Any:
    return shaped(rest.post(f"/alerts/{segment(alert)}/{deed}", body).body, AN_ALERT)


def create_alert_rule(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """The webhook's secret alone on standard output, where there is one."""
    is_above = options.above is not None
    body = {
        "name": options.name,
        "metric": options.metric,
        "comparison": "above" if is_above else "below",
        "threshold": options.above if is_above else options.below,
        **given(
            place=options.place,
            group=options.group,
            clears_at=options.clears_at,
            for_seconds=options.for_seconds,
            clear_for_seconds=options.clear_for_seconds,
            least_prompt_tokens=options.least_prompt_tokens,
            webhook_url=options.webhook,
        ),
    }
    made = shaped(rest.post(RULES, body).body, {**A_RULE, "webhook_secret": SECRET})
    words = f"{made['name']} watches {made['metric']} of {made['place']}"
    if not options.webhook:
        return made_told(options, paper, made, f"{words}.")
    said = f"{words}. Its webhooks are signed with this secret, which is shown now and never again:"
    again = f"Alert rule {made['name']}", f"luminet delete alert-rule {made['id']}"
    return secret_told(options, paper, made, said, made["webhook_secret"], again=again)


def set_alert_rule(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    """Only what is named changes."""
    body = given(
        threshold=options.threshold,
        clears_at=options.clears_at,
        for_seconds=options.for_seconds,
        enabled=options.enabled,
        webhook_url=options.webhook,
    )
    if not body:
        raise ClientError("say what is to change: --threshold, --clears-at, --for, --on, --off or --webhook")
    rule = _rule(options, rest)
    made = shaped(rest.ask("PATCH", f"{RULES}/{segment(rule['id'])}", body).body, {**A_RULE, "webhook_secret": SECRET})
    if made["webhook_secret"] is None:  # it stays as it was; a PATCH is never repeated
        return made_told(options, paper, made, f"{made['name']} is changed.")
    said = f"{made['name']} is changed. Its webhooks are signed with this secret, shown now and never again:"
    again = f"Alert rule {made['name']}", f"luminet delete alert-rule {made['id']}"
    return secret_told(options, paper, made, said, made["webhook_secret"], again=again)


def delete_alert_rule(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    rule = _rule(options, rest)
    agreed(f"This deletes the alert rule {rule['name']} of {rule['place']}", rule["name"], yes=options.yes)
    rest.delete(f"{RULES}/{segment(rule['id'])}")
    return made_told(options, paper, rule, f"{rule['name']} is deleted. What it found stays in the history.")


def _rule(options: argparse.Namespace, rest: Rest) -> Any:
    """By id, by its name, or by what a built-in one is called."""
    rules = [shaped(one, {**A_RULE, "built_in": object}) for one in rest.pages(RULES)]
    return only_one([one for one in rules if options.rule in (one["id"], one["name"], one["built_in"])], "alert rule")
