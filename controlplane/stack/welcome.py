"""The welcome text of `make up`: addresses, sign-ins, and the file with tokens for programs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controlplane.settings.env import CHECKOUT


def welcome(demo: dict[str, Any], *, demo_file: Path, logs: Path) -> list[str]:
    return list(_lines(demo, demo_file, logs))


def _lines(demo: dict[str, Any], demo_file: Path, logs: Path) -> Iterator[str]:
    operator = demo["operator"]
    yield _line("sign in", operator["email"])
    yield _line("password", operator["password"] or "the one you chose")
    yield from _customer(demo["orgs"])
    yield _line("REST API", f"{demo['web']}/api/v1/docs, tokens in {_shown(demo_file)}")
    if demo["gateway"]:
        yield _line("OpenAI API", f"{demo['gateway']}/v1, keys (api_key) in {_shown(demo_file)}")
    yield _line("details", f"{_shown(demo_file)} (for programs), {_shown(logs)} (logs)")
    yield _line("status", ".venv/bin/luminet stack status")
    yield _line("stop", "Ctrl-C here, or `make down`")


def _customer(orgs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the first customer whose password is known; the others are in the file."""
    known = [org for org in orgs if org["member"]["password"]]
    if not known:
        return
    first, *remaining = known
    suffix = f"; also {' and '.join(org['slug'] for org in remaining)}" if remaining else ""
    yield _line("customer", f"{first['member']['email']} (organisation {first['slug']}{suffix})")
    yield _line("password", first["member"]["password"])


def _line(word: str, text: str) -> str:
    return f"  {word:<10}  {text}"


def _shown(path: Path) -> str:
    return str(path.relative_to(CHECKOUT)) if path.is_relative_to(CHECKOUT) else str(path)
