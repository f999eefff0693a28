"""`get prices` and `set-prices`: the price list with its dates, and the changes that a file would make."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from controlplane.client.asking import agreed
from controlplane.client.command import FILE_HELP, Session, rest_command, yes_option
from controlplane.client.errors import ClientError
from controlplane.client.files import document_load
from controlplane.client.rest import if_match
from controlplane.client.shapes import shaped
from controlplane.client.tables import DIM, GREEN, RED, YELLOW, Paper, cell

ASKED = ("input", "cached_input", "output")
A_PRICE = {"model": str, "valid_from": str, **dict.fromkeys(ASKED, str), "is_example": bool}
PRICES = {"revision": int, "currency": (str, type(None)), "is_example": bool, "prices": [A_PRICE]}
WOULD_CHANGE = 2
SURE_DIGITS = 15  # digits that are certain in a decimal number from a file: beyond them, digits may have been rounded
EVERY_MODEL = "every model"
EXAMPLES = "These are examples: nobody asks such prices."
Price = Mapping[str, Any]
Change = Mapping[str, Any]


def prices(session: Session, scope: str | None, limit: int | None) -> None:
    if scope is not None:
        raise ClientError(f"this takes no place, and {scope!r} was given")
    price_list, paper = shaped(session.rest.get("/prices").body, PRICES), session.paper
    if session.is_json(price_list):
        return
    rows = [_row(price, price_list["prices"]) for price in price_list["prices"][:limit]]
    empty = "There are no prices yet: luminet set-prices -f FILE"
    paper.table(["MODEL", "FROM", "INPUT", "CACHED INPUT", "OUTPUT", "STATE"], rows, empty=empty)
    if rows:
        paper.say(
            paper.paint(f"{cell(price_list['currency'])} for a million tokens · revision {price_list['revision']}", DIM)
        )
    if price_list["is_example"]:
        paper.say(paper.paint(EXAMPLES, YELLOW))


@rest_command
@click.option("-f", "--file", required=True, metavar="FILE", help=FILE_HELP)
@click.option("--dry-run", is_flag=True, help="show what would change; status 2 when something would")
@yes_option
def set_prices(session: Session, file: str, dry_run: bool, yes: bool) -> int:
    """Replace the price list. Past prices that the file omits stay, because they have been invoiced."""
    answer = session.rest.get("/prices")
    current = shaped(answer.body, PRICES)
    desired = _with_past(_read(file), current["prices"])
    changes = _changes(current, desired)
    if not session.as_json:
        session.paper.say(*(_line(change, session.paper) for change in changes) if changes else ["Nothing to change."])
    if dry_run or not changes:
        session.show({"changes": changes})
        return WOULD_CHANGE if changes else 0
    agreed(f"This changes what tokens cost: {len(changes)} changes", "prices", yes=yes)
    updated = shaped(session.rest.put("/prices", desired, headers=if_match(answer)).body, PRICES)
    session.show(updated, f"The prices are at revision {updated['revision']}.")
    return 0


def _row(price: Price, listed_prices: Sequence[Price]) -> list[Any]:
    state = _state(price, listed_prices) + (", example" if price["is_example"] else "")
    return [price["model"] or EVERY_MODEL, price["valid_from"], *(price[name] for name in ASKED), state]


def _state(price: Price, listed_prices: Sequence[Price]) -> str:
    today = _today()
    if price["valid_from"] > today:
        return "to come"
    begun = [
        candidate["valid_from"]
        for candidate in listed_prices
        if candidate["model"] == price["model"] and candidate["valid_from"] <= today
    ]
    return "in force" if price["valid_from"] == max(begun) else "over"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _read(name: str) -> dict[str, Any]:
    """Return the file as the API accepts it, with numbers as text."""
    document = document_load(name)
    if not isinstance(document, dict) or not isinstance(document.get("prices"), list):
        raise ClientError(f"{name}: must have currency, and prices as a list")
    prices = [_price(row, f"{name}: prices.{position}") for position, row in enumerate(document["prices"])]
    return {**document, "prices": prices}


def _price(row: Any, path: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ClientError(f"{path} must have model, valid_from, {', '.join(ASKED)}")
    return {name: _text(value, f"{path}.{name}") if name in ASKED else value for name, value in row.items()}


def _text(value: Any, path: str) -> Any:
    """Return a number as text; the control plane refuses anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = Decimal(repr(value))
    if isinstance(value, float) and (not number.is_finite() or len(number.as_tuple().digits) > SURE_DIGITS):
        raise ClientError(f"{path}: write {value!r} in quotes, or digits of it are lost")
    return format(number, "f")


def _with_past(document: dict[str, Any], known: Sequence[Price]) -> dict[str, Any]:
    listed_keys = {_place(price) for price in document["prices"]}
    past_prices = [
        {name: price[name] for name in A_PRICE}
        for price in known
        if price["valid_from"] < _today() and not price["is_example"] and _place(price) not in listed_keys
    ]
    return {**document, "prices": [*past_prices, *document["prices"]]}


def _changes(current: Mapping[str, Any], desired: Mapping[str, Any]) -> list[Change]:
    before = {_place(price): price for price in current["prices"]}
    after = {_place(price): price for price in desired["prices"]}
    currency = {"what": "currency", "before": current["currency"], "after": desired.get("currency")}
    changed = [currency] if currency["before"] != currency["after"] else []
    return [*changed, *(_change(key, before.get(key), after.get(key)) for key in _differing(before, after))]


def _differing(before: Mapping[Any, Price], after: Mapping[Any, Price]) -> Iterator[tuple[str, str]]:
    for key in sorted({*before, *after}):
        if key not in before or key not in after or _paid(before[key]) != _paid(after[key]):
            yield key


def _change(key: tuple[str, str], before: Price | None, after: Price | None) -> Change:
    names = [*ASKED, "is_example"]
    old, new = ({name: price.get(name) for name in names} if price else None for price in (before, after))
    return {"what": "price", "model": key[0], "valid_from": key[1], "before": old, "after": new}


def _place(price: Price) -> tuple[str, str]:
    return str(price.get("model", "")), str(price.get("valid_from", ""))


def _paid(price: Price) -> tuple[Any, ...]:
    return (*(_number(price.get(name)) for name in ASKED), bool(price.get("is_example")))


def _number(amount: Any) -> Any:
    try:
        number = Decimal(str(amount))
    except InvalidOperation:
        return amount
    return number if number.is_finite() else amount


def _line(change: Change, paper: Paper) -> str:
    before, after = change["before"], change["after"]
    if change["what"] == "currency":
        return f"{paper.paint('~', YELLOW)} currency: {cell(before)} → {cell(after)}"
    sign = paper.paint(*(("+", GREEN) if before is None else ("-", RED) if after is None else ("~", YELLOW)))
    amounts = [f"{name} {_difference(before, after, name)}" for name in ASKED]
    note = " (example)" if (after or before)["is_example"] else ""
    return (
        f"{sign} {cell(change['model'] or EVERY_MODEL)} from {cell(change['valid_from'])}: {', '.join(amounts)}{note}"
    )


def _difference(before: Price | None, after: Price | None, name: str) -> str:
    if before is None or after is None:
        return cell((after or before or {}).get(name))
    is_same = _number(before[name]) == _number(after[name])
    return cell(after[name]) if is_same else f"{cell(before[name])} → {cell(after[name])}"
