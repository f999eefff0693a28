"""`what-if`: forecast a namespace's hit rate, memory and money under another TTL or limit, next to today's."""

from collections.abc import Mapping
from typing import Any

import click

from controlplane.client import amounts
from controlplane.client.command import Session, namespace_argument, rest_command
from controlplane.client.places import namespace_read
from controlplane.client.shapes import shaped
from controlplane.client.stats import percent
from controlplane.client.tables import DIM, Paper
from engine_agent.contracts.policy_fields import LABELS

TTL_MODES = ("sliding", "absolute")
NUMBER = (int, float)
FORETOLD = {
    "ttl_seconds": int,
    "ttl_mode": str,
    "limit_share": NUMBER,
    "hit_ratio": NUMBER,
    "hit_ratio_error": NUMBER,
    "resident_bytes": int,
    "hit_tokens_per_day": int,
    "saved_money_per_day": (dict, type(None)),
}
ANSWER = {"is_enough": bool, "agents": int, "covered_seconds": int, "measured_hit_ratio": (*NUMBER, type(None))}
MONEY = {"currency": str, "rounded": str, "is_example": bool, "without_price": [str]}
MIB = 2**20


@rest_command
@namespace_argument
@click.option("--ttl", type=amounts.ttl, metavar="SPAN", help="90 seconds, or 30m, 12h, 7d; else as it is")
@click.option("--mode", type=click.Choice(TTL_MODES), help="whether a hit would renew it; else as it is")
@click.option("--limit", type=amounts.share, help="of each pool, 0 to 1; else as it is")
def what_if(session: Session, place: str, ttl: int | None, mode: str | None, limit: float | None) -> None:
    share = None if limit is None else str(limit)
    path = f"{namespace_read(place).path}/what-if"
    forecast = shaped(session.rest.get(path, ttl_seconds=ttl, ttl_mode=mode, limit_share=share).body, ANSWER)
    if session.as_json:
        session.paper.json(forecast)
    elif not forecast["is_enough"]:
        session.paper.say(f"Too little traffic to foretell anything: {shaped(forecast, {'why': str})['why']}.")
    else:
        _table(shaped(forecast, {"now": FORETOLD, "then": FORETOLD}), session.paper)


def _table(forecast: Mapping[str, Any], paper: Paper) -> None:
    current, proposed = _column(forecast["now"]), _column(forecast["then"])
    paper.table(["", "IN FORCE", "THEN"], [[name, current[name], proposed[name]] for name in current], empty="")
    measured = forecast["measured_hit_ratio"]
    measurement = "nothing was measured" if measured is None else f"{percent(measured)} measured over 24 h"
    covered = (
        f", {forecast['covered_seconds'] // 60} min of which are covered"
        if forecast["covered_seconds"] < 86_400
        else ""
    )
    paper.say(paper.paint(f"{measurement}{covered} · foretold by {forecast['agents']} agents from reuse gaps", DIM))


def _column(scenario: Mapping[str, Any]) -> dict[str, str]:
    return {
        LABELS["ttl_seconds"]: f"{scenario['ttl_seconds']} s {scenario['ttl_mode']}",
        LABELS["limit_share"]: f"{scenario['limit_share'] * 100:g} % of each pool",
        "hit rate": f"{percent(scenario['hit_ratio'])} ± {scenario['hit_ratio_error'] * 100:.1f} points",
        "memory": f"{scenario['resident_bytes'] / MIB:,.1f} MiB",
        "hit tokens a day": f"{scenario['hit_tokens_per_day']:,}",
        "saved a day": _money(scenario["saved_money_per_day"]),
    }


def _money(amount: Mapping[str, Any] | None) -> str:
    if amount is None:
        return "no price is set"
    money = shaped(amount, MONEY)
    example = ", by example prices" if money["is_example"] else ""
    exclusions = f", without {', '.join(money['without_price'])}" if money["without_price"] else ""
    return f"{money['rounded']} {money['currency']}{example}{exclusions}"
