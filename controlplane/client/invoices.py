"""`invoice`: the cost of an organisation's requests, as a table, as CSV, and for programs."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from controlplane.client import amounts
from controlplane.client.command import Session, org_argument, rest_command
from controlplane.client.errors import ClientError
from controlplane.client.places import organisation_read
from controlplane.client.shapes import shaped
from controlplane.client.tables import BOLD, DIM, YELLOW, Paper, cell

TEXT_OR_NOT = (str, type(None))
COUNTS = dict.fromkeys(("requests", "prompt_tokens", "cached_tokens", "generated_tokens"), int)
AMOUNTS = dict.fromkeys(("amount", "amount_rounded", "saved", "saved_rounded"), TEXT_OR_NOT)
A_LINE = {"day": str, "namespace": TEXT_OR_NOT, "model": str, **COUNTS, **AMOUNTS, "is_open": bool}
AN_INVOICE = {
    **dict.fromkeys(("organisation", "from", "to"), str),
    **dict.fromkeys(("currency", "may_change_from"), TEXT_OR_NOT),
    "is_example": bool,
    "without_price": [str],
    "totals": {**COUNTS, **AMOUNTS},
    "lines": [A_LINE],
}
COLUMNS = {
    "DAY": "day", "NAMESPACE": "namespace", "MODEL": "model", "REQUESTS": "requests", "PROMPT": "prompt_tokens",
    "CACHED": "cached_tokens", "GENERATED": "generated_tokens", "AMOUNT": "amount", "SAVED": "saved", "OPEN": "is_open",
}  # fmt: skip


@rest_command
@org_argument
@click.option("--month", type=amounts.month, help="2026-11; else this month so far")
@click.option("--from", "first", type=amounts.day, help="the first day, in UTC")
@click.option("--to", "last", type=amounts.day, help="the last day, in UTC")
@click.option("--by", type=click.Choice(["namespace", "model"]), help="a line for each (namespace)")
@click.option("--csv", "as_csv", is_flag=True, help="for spreadsheets: the lines, with exact amounts")
def invoice(
    session: Session,
    org: str,
    month: tuple[str, str] | None,
    first: str | None,
    last: str | None,
    by: str | None,
    as_csv: bool,
) -> None:
    path = f"{organisation_read(org).path}/invoice"
    if as_csv and session.as_json:
        raise ClientError("--csv or --json: one of the two")
    if month and (first or last):
        raise ClientError("--month says both days: leave --from and --to out")
    first, last = month or (first, last)
    query = {"from": first, "to": last, "by": by}
    if as_csv:
        session.paper.say(*session.rest.text(path, **query, format="csv").splitlines())
        return
    invoice_record = shaped(session.rest.get(path, **query).body, AN_INVOICE)
    if session.is_json(invoice_record):
        return
    rows = [[line[field] for field in COLUMNS.values()] for line in invoice_record["lines"]]
    session.paper.table(list(COLUMNS), rows, empty="Nothing was asked in these days.")
    session.paper.say("", *_summary(invoice_record, session.paper))


def _summary(invoice: Mapping[str, Any], paper: Paper) -> Iterator[str]:
    totals, currency = invoice["totals"], cell(invoice["currency"])
    days = f"{cell(invoice['organisation'])}, {cell(invoice['from'])} to {cell(invoice['to'])}"
    tokens = f"{totals['prompt_tokens']} prompt tokens, {totals['cached_tokens']} of them cached"
    yield f"{days}: {totals['requests']} requests, {tokens}, {totals['generated_tokens']} generated"
    for name in ("amount", "saved"):
        rounded, exact = totals[f"{name}_rounded"], totals[name]
        amount = (
            "no price" if exact is None else f"{paper.paint(cell(rounded), BOLD)} {currency} (exactly {cell(exact)})"
        )
        yield f"{name}: {amount}"
    if invoice["is_example"]:
        yield paper.paint("At example prices: nobody owes this.", YELLOW)
    if invoice["without_price"]:
        yield paper.paint(f"Lines without a price have no amount: {cell(invoice['without_price'])}", YELLOW)
    if invoice["may_change_from"] is not None:
        words = f"Agents may report up to 48 h late: lines from {cell(invoice['may_change_from'])} on may still grow."
        yield paper.paint(words, DIM)
