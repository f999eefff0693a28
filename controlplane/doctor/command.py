"""The command `luminet doctor`: find the place, run its checks and print the report.

It parses its arguments with the standard library, so that it also works where nothing is installed.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from controlplane.client import amounts
from controlplane.client.asking import working
from controlplane.client.errors import ClientError
from controlplane.client.session import url_checked
from controlplane.client.tables import Paper
from controlplane.common.version import version
from controlplane.doctor import report
from controlplane.doctor.checks import TITLES, checks_of
from controlplane.doctor.context import Context
from controlplane.doctor.examining import SECONDS, Examinations
from controlplane.doctor.place import Place, place_find


class Parser(argparse.ArgumentParser):
    """A parser that ends a mistyped command with status 1, as every other command does."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}. See {self.prog} --help\n")


def main(arguments: Sequence[str]) -> int:
    return doctor(parser().parse_args(arguments))


def parser() -> argparse.ArgumentParser:
    about = "Say what is well here, what is not, and what to do."
    doctor: argparse.ArgumentParser = Parser(prog="luminet doctor", description=about)
    doctor.add_argument("area", nargs="*", type=_area, metavar="AREA", help=", ".join(TITLES) + "; none: all")
    target_options = doctor.add_mutually_exclusive_group()
    target_options.add_argument("--home", type=Path, metavar="DIR", help="of an agent or a gateway: examine that")
    target_options.add_argument(
        "--url", metavar="URL", help="of a control plane: examine that, from afar (LUMINET_URL)"
    )
    doctor.add_argument("--insecure", action="store_true", help="let the token travel over http to another machine")
    doctor.add_argument("--seconds", type=amounts.seconds, default=SECONDS, help="how long a check may take (7)")
    doctor.add_argument("--deep", action="store_true", help="walk the whole audit trail, too, however long that takes")
    doctor.add_argument("--json", action="store_true", help="for programs")
    return doctor


def _area(text: str) -> str:
    if text not in TITLES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(TITLES)}")
    return text


def doctor(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> int:
    token = environ.get("LUMINET_TOKEN", "").strip()
    try:
        installation = _place(options, environ, token)
    except ClientError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    checks = [check for check in checks_of(installation) if not options.area or check.area in options.area]
    examinations = Examinations(checks, Context(installation, token), options.seconds)
    with working(examinations.progress):
        findings = examinations.findings()
    paper = Paper()
    if options.json:
        paper.json(report.as_json(findings))
    else:
        report.as_text(paper, f"Luminet {version()}: {installation.words}", TITLES, findings)
    return report.exit_status(findings)


def _place(options: argparse.Namespace, environ: Mapping[str, str], token: str) -> Place:
    """Return the place. A URL that would send the token unencrypted is refused; without a token, any URL will do."""
    installation = place_find(environ, home=options.home, url=options.url or "", is_deep=options.deep)
    installation = replace(installation, seconds=options.seconds)
    if options.deep and installation.kind in ("agent", "remote"):
        raise ClientError("--deep walks the audit trail in its database, and none is known here: run it beside web")
    if installation.kind != "remote":
        return installation
    return replace(installation, url=url_checked(installation.url, insecure=options.insecure or not token))
