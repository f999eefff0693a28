"""Writes what is made of the definitions: Prometheus' rules and tests, a dashboard, the tables of docs/alerts.md.

    python -m controlplane.alerts.generate

`make alert-files` does this; a test says when it is to be done.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from controlplane.alerts.definitions import BUILT_IN, METRICS, WATCHDOGS, BuiltIn, value_words
from controlplane.alerts.grafana import dashboard_text
from controlplane.alerts.prometheus import RULES_FILE, rules_text, tests_text

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PROMETHEUS: Final = "deploy/prometheus"
DOCS: Final = "docs/alerts.md"
_TABLE = "<!-- table: {name} -->\n{rows}\n<!-- end -->"
_FOUND = re.compile(r"<!-- table: (\w+) -->\n.*?\n?<!-- end -->", re.DOTALL)


def files() -> Mapping[str, str]:
    """What each is to hold, by its path in the checkout."""
    return {
        f"{PROMETHEUS}/{RULES_FILE}": rules_text(),
        f"{PROMETHEUS}/luminet.tests.yml": tests_text(),
        "deploy/grafana/luminet.json": dashboard_text(),
        DOCS: docs_text((CHECKOUT / DOCS).read_text(encoding="utf-8")),
    }


def docs_text(text: str) -> str:
    """The page with its tables as they are to be; all else is people's."""
    tables = {"metrics": _metrics(), "rules": _rules(), "prometheus": _prometheus()}
    return _FOUND.sub(lambda found: _TABLE.format(name=found[1], rows="\n".join(tables[found[1]])), text)


def _metrics() -> Iterator[str]:
    heads = ("metric", "of each", "unit", "customers", "what it is")
    rows = [
        (f"`{one.name}`", one.subject, one.unit, "yes" if one.is_for_customers else "–", one.about)
        for one in METRICS.values()
    ]
    return _table(heads, rows)


def _rules() -> Iterator[str]:
    heads = ("rule", "about", "fires", "is over", "then")
    rows = [(f"`{one.key}`", one.name, _fires(one), _over(one), METRICS[one.metric].next_step) for one in BUILT_IN]
    return _table(heads, rows)


def _fires(one: BuiltIn) -> str:
    unit = METRICS[one.metric].unit
    lasting = f" for {value_words('seconds', one.for_seconds)}" if one.for_seconds else ""
    least = f", with at least {one.least_prompt_tokens:,} prompt tokens" if one.least_prompt_tokens else ""
    return f"`{one.metric}` {one.comparison} {value_words(unit, one.threshold)}{lasting}{least}"


def _over(one: BuiltIn) -> str:
    back = "at most" if one.comparison == "above" else "at least"
    unit = METRICS[one.metric].unit
    return f"{back} {value_words(unit, one.clears_at)} for {value_words('seconds', one.clear_for_seconds)}"


def _prometheus() -> Iterator[str]:
    ours = [(f"`{one.prometheus_name}`", f"as `{one.key}`", one.prometheus_for) for one in BUILT_IN]
    return _table(
        ("alert", "says", "for"), [*ours, *((f"`{one.name}`", f"{one.says}.", one.prometheus_for) for one in WATCHDOGS)]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main() -> None:
    for path, text in files().items():
        (CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (CHECKOUT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
