"""Prices and invoices from the command line, against a control plane that answers over a real socket."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_django.live_server_helper import LiveServer

from controlplane.analytics import models
from controlplane.analytics.prices import prices_now
from controlplane.cli import main
from tests.database.factories import make_operator
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_operator_token, make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def luminet(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command as an operator; its status, what it said, and what it complained about."""
    monkeypatch.setenv("LUMINET_URL", live_server.url)
    monkeypatch.setenv("LUMINET_TOKEN", make_operator_token(make_operator()))

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "prices.yaml"
        path.write_text(text)
        return str(path)

    return write


def day(days: int) -> str:
    return str(datetime.now(UTC).date() + timedelta(days=days))


def document(*prices: dict[str, Any], currency: str = "EUR") -> str:
    return yaml.safe_dump({"currency": currency, "prices": list(prices)})


def price(days: int = 0, **more: Any) -> dict[str, Any]:
    return {"valid_from": day(days), "input": 2, "cached_input": 0.5, "output": "8", **more}


def test_prices_are_previewed_then_set_then_changed(luminet: Run, written: Callable[[str], str]) -> None:
    assert luminet("get", "prices") == (0, "There are no prices yet: luminet set-prices -f FILE\n", "")
    file = written(document(price(), price(30, model="qwen3-8b", input="0.123456789", cached_input=0.1)))
    status, out, _ = luminet("set-prices", "-f", file, "--dry-run")
    assert status == 2
    assert "~ currency: – → EUR" in out
    assert f"+ every model from {day(0)}: input 2, cached_input 0.5, output 8" in out
    assert prices_now() == []
    assert luminet("set-prices", "-f", file, "--yes")[:2] == (0, out + "The prices are at revision 1.\n")
    assert luminet("set-prices", "-f", file, "--dry-run") == (0, "Nothing to change.\n", "")
    assert [one.input for one in prices_now()] == [2, Decimal("0.123456789")]
    status, out, _ = luminet("set-prices", "-f", written(document(price(output=9))), "--yes")
    assert status == 0
    assert f"~ every model from {day(0)}: input 2, cached_input 0.5, output 8 → 9" in out
    assert f"- qwen3-8b from {day(30)}: input 0.123456789, cached_input 0.1, output 8" in out


def test_the_list_says_what_is_in_force_and_what_is_an_example(luminet: Run, written: Callable[[str], str]) -> None:
    examples = [price(one, is_example=True) for one in (-9, -3, 3)]
    assert luminet("set-prices", "-f", written(document(*examples)), "--yes")[0] == 0
    status, out, _ = luminet("get", "prices")
    assert status == 0
    states = [line.split("  ")[-1].strip() for line in out.splitlines()[1:4]]
    assert states == ["over, example", "in force, example", "to come, example"]
    assert out.endswith("These are examples: nobody asks such prices.\n")
    assert len(json.loads(luminet("get", "prices", "--json")[1])["prices"]) == 3


def test_a_file_need_not_repeat_what_was_invoiced_and_cannot_change_it(
    luminet: Run, written: Callable[[str], str]
) -> None:
    luminet("set-prices", "-f", written(document(price(0))), "--yes")
    models.Price.objects.update(valid_from=datetime.now(UTC).date() - timedelta(days=9))
    assert luminet("set-prices", "-f", written(document(price(1, output=9))), "--yes")[0] == 0
    assert [one.output for one in prices_now()] == [8, 9]
    status, _, err = luminet("set-prices", "-f", written(document(price(-9, output=7))), "--yes")
    assert status == 1
    assert "prices.0.output: would change the price of every model" in err
    assert [one.output for one in prices_now()] == [8, 9]


ONE = 'currency: EUR\nprices: [{valid_from: "2036-01-01", input: %s, cached_input: %s, output: 1}]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("currency: EUR\n", "must have currency, and prices as a list"),
        ("- 1\n", "must have currency, and prices as a list"),
        ("currency: EUR\nprices: [1]\n", "prices.0 must have model, valid_from"),
        ("currency: EUR\nprices: [{valid_from: 2036-01-01}]\n", "write it in quotes if it is text"),
        (ONE % ("0.12345678901234566", 0), "prices.0.input: write 0.12345678901234566 in quotes"),
        (ONE % (1, 2), "prices.0.cached_input: 2 is more than input"),
        (ONE % ("sNaN", 0), "prices.0.input"),
        (ONE % (".inf", 0), "prices.0.input"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_name(
    luminet: Run, written: Callable[[str], str], text: str, said: str
) -> None:
    status, _, err = luminet("set-prices", "-f", written(text), "--yes")
    assert status == 1
    assert said in err
    assert prices_now() == []


def test_nobody_is_asked_where_nobody_sits(luminet: Run, written: Callable[[str], str]) -> None:
    status, _, err = luminet("set-prices", "-f", written(document(price())))
    assert (status, "say --yes" in err) == (1, True)
    assert prices_now() == []


def test_an_invoice_as_a_table_as_csv_and_for_programs(luminet: Run, written: Callable[[str], str]) -> None:
    chat = make_organisation("acme", "chat").namespaces.get(slug="chat")
    luminet("set-prices", "-f", written(document(price(-400))), "--yes")
    now = datetime.now(UTC)
    store(Counted(chat, now, counts(3, 5_000_000, 3_000_001, generated_tokens=1)))
    status, out, _ = luminet("invoice", "acme")
    assert status == 0
    line = ["chat", "m", "3", "5000000", "3000001", "1", "5.5000065", "4.5000015", "yes"]
    assert out.splitlines()[1].split() == [day(0), *line]
    assert "amount: 5.50 EUR (exactly 5.5000065)" in out
    assert "saved: 4.50 EUR (exactly 4.5000015)" in out
    found = json.loads(luminet("invoice", "acme", "--month", f"{now:%Y-%m}", "--json")[1])
    assert (found["from"], found["totals"]["amount"]) == (f"{now:%Y-%m}-01", "5.5000065")
    status, out, _ = luminet("invoice", "acme", "--from", day(-3), "--to", day(0), "--by", "model", "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (status, row["namespace"], row["amount"], row["prompt_tokens"]) == (0, "", "5.5000065", "5000000")
    assert "Nothing was asked in these days." in luminet("invoice", "acme", "--to", day(-1), "--from", day(-1))[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--month", "2026-11", "--from", "2026-11-01"], "leave --from and --to out"),
        (["--csv", "--json"], "one of the two"),
        (["--from", "2026-11-22", "--to", "2026-11-21"], "to: 2026-11-21 is before from"),
    ],
)
def test_what_cannot_be_asked_is_said(luminet: Run, arguments: list[str], said: str) -> None:
    make_organisation("acme")
    status, _, err = luminet("invoice", "acme", *arguments)
    assert (status, said in err) == (1, True)


def test_of_whoever_is_not_there_csv_too_is_refused_in_words(luminet: Run) -> None:
    status, out, err = luminet("invoice", "nobody", "--csv")
    assert (status, out, "There is no such organisation" in err) == (1, "", True)


@pytest.mark.parametrize("month", ["2026-13", "2026-1", "26-01", "0000-01", "2026-11-01", "x"])
def test_what_is_no_month_is_a_mistyped_command(month: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["invoice", "acme", "--month", month]) == 1
    told = capsys.readouterr().err
    assert f"Invalid value for '--month': {month!r} is no month such as 2026-11" in told
    assert "See luminet invoice --help" in told
