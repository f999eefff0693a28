"""The tables of docs/http-edge.md, from the cases: `python -m tests.edge.page` writes them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from engine_agent.process.config import CHECKOUT
from tests.edge.cases import GROUPS, SERVERS, TAKEN, Case, Expected

PAGE: Final = CHECKOUT / "docs" / "http-edge.md"
BEGIN, END = "<!-- cases: python -m tests.edge.page -->\n", "<!-- end of cases -->\n"
ENDS: Final[Mapping[str, str]] = {
    "closes": "closes",
    "stays": "stays open",
    "left": "the client is gone",
}


def tables() -> str:
    return "\n".join(line for group in GROUPS for line in ("", f"### {group.title}", "", *_table(group.cases), ""))[1:]


def _table(cases: Sequence[Case]) -> Iterator[str]:
    yield "| case | decision | answer, and the connection | elsewhere |"
    yield "|---|---|---|---|"
    for case in cases:
        yield f"| `{case.name}` | {case.decision} | {_shown(case.expected)} | {_elsewhere(case)} |"


def _elsewhere(case: Case) -> str:
    servers = [f"{server}: {_shown(case.by_server[server])}" for server in SERVERS if server in case.by_server]
    return "; ".join([*servers, *case.by_proxy.values()])


def _shown(expected: Expected) -> str:
    statuses = ["served" if status == TAKEN else str(status) for status in expected.statuses]
    interim = ["100"] * max(0, expected.interim)
    others = "".join(f" or {', '.join(map(str, also)) or 'none'}" for also in expected.also)
    return f"{', '.join([*interim, *statuses]) or 'none'}{others}; {ENDS[expected.end]}"


def page_with(text: str, cases: str) -> str:
    before, rest = text.split(BEGIN)
    return before + BEGIN + cases + END + rest.split(END)[1]


def main(page: Path = PAGE) -> None:
    page.write_text(page_with(page.read_text(encoding="utf-8"), tables()), encoding="utf-8")


if __name__ == "__main__":
    main()
