"""The commands that speak to a control plane: their arguments, and doors to them, which load nothing until opened."""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import TypeAlias

from controlplane.client import amounts
from controlplane.client.policy_help import policy_fields_help

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
NOUNS = (
    "orgs", "org", "namespaces", "namespace", "policy", "effective", "revisions", "members", "keys", "pins", "bounds",
    "limits", "operation", "audit", "groups", "agents", "agent", "join-tokens", "rollouts", "rollout", "quality",
    "prices", "alerts", "alert-rules",
)  # fmt: skip
SCOPES = ("infer", "stats:read", "policy:read", "policy:write", "admin")
REST_SCOPES = tuple(scope for scope in SCOPES if scope != "infer")  # what an operator's token can be for
ROLES = ("viewer", "editor", "admin")
AGENT_KINDS = ("engine", "gateway")
TTL_MODES = ("sliding", "absolute")
WINDOWS = ("1h", "24h", "7d", "30d")
ALERT_METRICS = (
    "pool_use", "hit_ratio", "evictions", "preemptions", "silence", "drift", "disk_wait", "clock_skew",
    "reconciliation", "reconciliation_age", "audit_anchors", "audit_anchor_age", "isolation",
    "isolation_timing", "integrity", "refused_rows",
)  # fmt: skip
WAIT_SECONDS = 600.0
MAX_DELETES = 10


def client_commands(commands: Commands) -> None:
    """Adds them to those of this machine."""
    plan = _add(commands, "plan", "configs.plan", "show what a file would change; status 2 when something would")
    _file(plan, required=True)
    plan.add_argument("--out", metavar="PLAN.json", help="write the plan, to be reviewed and applied exactly")
    apply = _add(commands, "apply", "configs.apply", "apply a file or a reviewed plan, as a whole or not at all")
    apply.add_argument(
        "plan", nargs="?", metavar="PLAN.json", help="what plan --out wrote; status 3 when it is outdated"
    )
    _file(apply, required=False)
    apply.add_argument(
        "--max-deletes", type=amounts.whole, default=MAX_DELETES, metavar="N",
        help=f"refuse to delete more organisations and namespaces than this ({MAX_DELETES}); those inside count",
    )  # fmt: skip
    _waits(apply)
    _asks(apply)
    export = _add(commands, "export", "configs.export", "print the configuration as a file that changes nothing")
    export.add_argument("--org", metavar="SLUG", help="only this organisation")
    export.add_argument("--owner", metavar="NAME", help="only what your file of this owner owns, as that file")
    _add(commands, "schema", "configs.schema", "print the JSON Schema of such files, for editors")
    _reading(commands)
    _changing(commands)
    _fleet(commands)
    _money(commands)
    _foretelling(commands)
    _alerts(commands)
    _creating(commands.add_parser("create", help="create one thing").add_subparsers(metavar="WHAT", required=True))
    _deleting(commands.add_parser("delete", help="delete one thing").add_subparsers(metavar="WHAT", required=True))


def _reading(commands: Commands) -> None:
    get = _add(commands, "get", "reading.get", "show what there is")
    get.add_argument("noun", choices=NOUNS, metavar="WHAT", help=", ".join(NOUNS))
    get.add_argument("place", nargs="?", metavar="PLACE", help="acme, acme/chat, or an id; none: the fleet")
    get.add_argument("--limit", type=amounts.count, metavar="N", help="of a list, the first so many")
    get.add_argument("--model", help="with effective: what is in force for this model")
    _stats(commands)
    _add(commands, "whoami", "reading.whoami", "show who the token speaks for, and what it may do")


def _stats(commands: Commands) -> None:
    stats = _add(commands, "stats", "stats.stats", "show what was counted: hit rate, requests, tokens, what was saved")
    stats.add_argument("place", nargs="?", metavar="PLACE", help="acme or acme/chat; none: the fleet")
    stats.add_argument("--window", choices=WINDOWS, default="24h", help="how far back from now (24h)")
    stats.add_argument("--namespace", metavar="SLUG", help="the same as acme/SLUG")
    stats.add_argument("--model", help="only of this model")
    stats.add_argument("--csv", action="store_true", help="for spreadsheets")
    stats.add_argument("--watch", action="store_true", help="again every two seconds, until Ctrl-C")


def _changing(commands: Commands) -> None:
    rollback = _add(commands, "rollback", "changing.rollback", "publish again what an earlier revision said")
    rollback.add_argument("place", metavar="PLACE", help="fleet, acme or acme/chat")
    rollback.add_argument("revision", type=amounts.revision, metavar="REVISION", help="0 is before the first")
    rollback.add_argument("--note", default="", help="why, for whoever reads the history")
    _asks(rollback)
    purge = _add(commands, "purge", "changing.purge", "let nothing cached so far match any more")
    purge.add_argument("place", metavar="PLACE", help="acme or acme/chat")
    purge.add_argument("--include-pins", action="store_true", help="pins, too; without it they are warmed again")
    _waits(purge)
    _asks(purge)


def _fleet(commands: Commands) -> None:
    tokens = commands.add_parser("join-token", help="tokens that agents join with")
    _join_tokens(tokens.add_subparsers(metavar="DEED", required=True))
    for deed, about in (
        ("drain", "send an agent nothing new, and let it finish"),
        ("resume", "send a drained agent requests again"),
    ):
        steer = _add(commands, deed, f"fleet.{deed}", about)
        steer.add_argument("agent", metavar="AGENT", help="its id")
        _waits(steer)
    rollout = commands.add_parser("rollout", help="steer a policy on its way to the agents")
    deeds = rollout.add_subparsers(metavar="DEED", required=True)
    for deed, about in (
        ("pause", "reach nobody else until it is resumed"),
        ("resume", "let it go on"),
        ("promote", "go to the next step now, whatever its guards say"),
        ("abort", "take it back: publish what was in force before, to all at once"),
    ):
        steer = _add(deeds, deed, f"fleet.rollout_{deed}", about)
        steer.add_argument("rollout", metavar="ID", help="luminet get rollouts shows it")
    _asks(steer)


def _money(commands: Commands) -> None:
    put = _add(commands, "set-prices", "prices.set_prices", "change what tokens cost, from today or a later day on")
    put.add_argument("-f", "--file", required=True, metavar="FILE", help="YAML or JSON; - reads standard input")
    put.add_argument("--dry-run", action="store_true", help="show what would change; status 2 when something would")
    _asks(put)
    invoice = _add(commands, "invoice", "invoices.invoice", "show what an organisation's requests came to")
    invoice.add_argument("org", metavar="ORG")
    invoice.add_argument("--month", type=amounts.month, metavar="MONTH", help="2026-11; else this month so far")
    invoice.add_argument("--from", dest="first", type=amounts.day, metavar="DAY", help="the first day, in UTC")
    invoice.add_argument("--to", dest="last", type=amounts.day, metavar="DAY", help="the last day, in UTC")
    invoice.add_argument("--by", choices=("namespace", "model"), help="a line for each (namespace)")
    invoice.add_argument("--csv", action="store_true", help="for spreadsheets: the lines, with exact amounts")


def _alerts(commands: Commands) -> None:
    seen = _add(commands, "acknowledge", "alerts.acknowledge", "say that you look after an alert")
    seen.add_argument("alert", metavar="ID", help="luminet get alerts shows it")
    seen.add_argument("--note", default="", help="what is being done about it")
    silence = _add(commands, "silence", "alerts.silence", "send nothing of an alert for a while")
    silence.add_argument("alert", metavar="ID", help="luminet get alerts shows it")
    lasting = silence.add_mutually_exclusive_group(required=True)
    lasting.add_argument("--for", dest="seconds", type=amounts.span, metavar="SPAN", help="30m, 12h, 7d")
    lasting.add_argument("--until", type=amounts.expiry, metavar="WHEN", help="a time such as 2027-01-31T23:59:59Z")
    lasting.add_argument("--end", action="store_true", help="of the silence there is")
    change = _add(commands, "set-alert-rule", "alerts.set_alert_rule", "change an alert rule, or switch it on or off")
    change.add_argument("rule", metavar="RULE", help="its id, its name, or what a built-in one is called")
    change.add_argument("--threshold", type=amounts.number, metavar="NUMBER")
    _lasting(change)
    state = change.add_mutually_exclusive_group()
    state.add_argument("--on", dest="enabled", action="store_true", default=None, help="evaluate it")
    state.add_argument("--off", dest="enabled", action="store_false", default=None, help="do not; what fires is over")


def _alert_rule(rule: argparse.ArgumentParser) -> None:
    rule.add_argument("name", metavar="NAME", help="what it is for")
    rule.add_argument("--metric", required=True, choices=ALERT_METRICS, help="what is measured")
    beyond = rule.add_mutually_exclusive_group(required=True)
    beyond.add_argument("--above", type=amounts.number, metavar="NUMBER", help="fires above it, in the metric's unit")
    beyond.add_argument("--below", type=amounts.number, metavar="NUMBER", help="fires below it")
    rule.add_argument("--place", metavar="PLACE", help="fleet, acme or acme/chat; else all that is yours")
    rule.add_argument("--group", metavar="SLUG", help="only this agent group, for operators")
    _lasting(rule)
    rule.add_argument("--clear-for", dest="clear_for_seconds", type=amounts.span, metavar="SPAN", help="a minute, else")
    rule.add_argument("--least-prompt-tokens", type=amounts.count, metavar="N", help="in 15 minutes, to know anything")


def _lasting(rule: argparse.ArgumentParser) -> None:
    rule.add_argument("--clears-at", type=amounts.number, metavar="NUMBER", help="how far back it has to come")
    rule.add_argument("--for", dest="for_seconds", type=amounts.span, metavar="SPAN", help="how long before it fires")
    rule.add_argument("--webhook", metavar="URL", help="who is told, by https")


def _foretelling(commands: Commands) -> None:
    about = "foretell a namespace's hit rate, memory and money under another time to live or limit"
    what_if = _add(commands, "what-if", "whatif.what_if", about)
    what_if.add_argument("place", metavar="PLACE", help="acme/chat")
    what_if.add_argument("--ttl", type=amounts.ttl, metavar="SPAN", help="90 seconds, or 30m, 12h, 7d; else as it is")
    what_if.add_argument("--mode", choices=TTL_MODES, help="whether a hit would renew it; else as it is")
    what_if.add_argument("--limit", type=amounts.share, metavar="SHARE", help="of each pool, 0 to 1; else as it is")
    demo = commands.add_parser("demo-traffic", help="the traffic of the demo, which this control plane may have")
    deeds = demo.add_subparsers(metavar="DEED", required=True)
    for deed, words in (
        ("start", "let it send from now on, over restarts too"),
        ("stop", "let it send nothing from now on, over restarts too"),
        ("status", "say whether it is here, and what it does"),
    ):
        _add(deeds, deed, f"demo_traffic.{deed}", words)


def _join_tokens(deeds: Commands) -> None:
    create = _add(deeds, "create", "fleet.join_token_create", "create a token that agents join with, and print it once")
    create.add_argument("name", metavar="NAME", help="what it is for")
    create.add_argument("--kind", choices=AGENT_KINDS, help="who may join with it; else both")
    create.add_argument("--group", metavar="SLUG", help="the agent group it leads into")
    create.add_argument("--agent", metavar="ID", help="whoever joins with it gets this id, or takes that agent over")
    uses = create.add_mutually_exclusive_group()
    uses.add_argument("--uses", type=amounts.count, default=1, metavar="N", help="how often it may be used (1)")
    uses.add_argument("--any-number", action="store_true", help="as often as wanted, until it expires")
    create.add_argument("--expires-in", type=amounts.span, default=3600, metavar="SPAN", help="30m, 12h, 7d (an hour)")
    revoke = _add(deeds, "revoke", "fleet.join_token_revoke", "let nobody join with it any more")
    revoke.add_argument("token", metavar="TOKEN", help="its id, its name or how it begins")
    _asks(revoke)


def _creating(commands: Commands) -> None:
    org = _add(commands, "org", "changing.create_org", "create an organisation")
    org.add_argument("slug", metavar="SLUG")
    org.add_argument("--name", help="how people call it")
    namespace = _add(commands, "namespace", "changing.create_namespace", "create a namespace")
    namespace.add_argument("place", metavar="PLACE", help="acme/chat")
    namespace.add_argument("--name", help="how people call it")
    namespace.add_argument("--group", metavar="SLUG", help="which agents serve it")
    group = _add(commands, "group", "changing.create_group", "create an agent group")
    group.add_argument("slug", metavar="SLUG")
    group.add_argument("--name", help="how people call it")
    key = _add(commands, "key", "changing.create_key", "create an API key and print its secret once")
    key.add_argument("org", metavar="ORG")
    key.add_argument("name", metavar="NAME", help="what it is for")
    key.add_argument("--scope", action="append", required=True, choices=SCOPES, help="may be repeated")
    key.add_argument("--namespace", action="append", metavar="SLUG", help="bind it to these; may be repeated")
    key.add_argument(
        "--expires", type=amounts.expiry, metavar="WHEN", help="30d, 12h, or a time such as 2027-01-31T23:59:59Z"
    )
    member = _add(commands, "member", "changing.create_member", "invite somebody and print the link once")
    member.add_argument("org", metavar="ORG")
    member.add_argument("email", metavar="EMAIL")
    member.add_argument("--role", required=True, choices=ROLES)
    _alert_rule(_add(commands, "alert-rule", "alerts.create_alert_rule", "make a rule by which there are alerts"))


def _deleting(commands: Commands) -> None:
    org = _add(commands, "org", "changing.delete_org", "delete an organisation with all it has")
    org.add_argument("org", metavar="ORG")
    namespace = _add(commands, "namespace", "changing.delete_namespace", "delete a namespace")
    namespace.add_argument("place", metavar="PLACE", help="acme/chat")
    key = _add(commands, "key", "changing.delete_key", "revoke an API key")
    key.add_argument("org", metavar="ORG")
    key.add_argument("key", metavar="KEY", help="its id, its name or how it begins")
    member = _add(commands, "member", "changing.delete_member", "remove a member")
    member.add_argument("org", metavar="ORG")
    member.add_argument("email", metavar="EMAIL", help="or its id")
    agent = _add(commands, "agent", "fleet.delete_agent", "take an agent out of the fleet")
    agent.add_argument("agent", metavar="AGENT", help="its id")
    rule = _add(commands, "alert-rule", "alerts.delete_alert_rule", "delete an alert rule that somebody made")
    rule.add_argument("rule", metavar="RULE", help="its id or its name")
    for parser in (org, namespace, key, member, agent, rule):
        _asks(parser)


def _add(commands: Commands, name: str, target: str, about: str) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    added.add_argument("--url", help="the control plane; else LUMINET_URL, or the stack that runs from here")
    added.add_argument("--insecure", action="store_true", help="send the token in clear over http")
    added.add_argument("--json", action="store_true", help="for programs")
    added.set_defaults(command=_door(target))
    return added


def _file(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("-f", "--file", required=required, metavar="FILE", help="YAML or JSON; - reads standard input")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = policy_fields_help()
    parser.add_argument(
        "--prune",
        action="store_true",
        help="delete what the file owns and does not name; needs --org or an owner in it",
    )
    parser.add_argument("--org", action="append", metavar="SLUG", help="prune only in this one; may be repeated")
    parser.add_argument(
        "--take-ownership", action="store_true", help="take over existing objects of another owner, or of none"
    )


def _waits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until every agent has sent its receipt")
    parser.add_argument(
        "--timeout", type=amounts.seconds, default=WAIT_SECONDS, metavar="SECONDS", help="wait no longer than this"
    )


def _asks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _door(target: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = target.partition(".")

    def open_it(options: argparse.Namespace) -> int:
        from controlplane.client.errors import ClientError
        from controlplane.client.session import connect
        from controlplane.client.tables import Paper

        try:
            command = getattr(importlib.import_module(f"controlplane.client.{module}"), name)
            with contextlib.closing(connect(options)) as rest:
                status: int = command(options, rest, Paper())
        except ClientError as error:
            print(f"luminet: {error}", file=sys.stderr)
            return error.exit_status
        return status

    return open_it
