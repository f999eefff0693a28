"""`luminet doctor`: finds out where it is, examines what is there, and says what is well, what is not, what to do."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from controlplane.client.asking import working
from controlplane.client.errors import ClientError
from controlplane.client.session import url_checked
from controlplane.client.tables import Paper
from controlplane.common.version import version
from controlplane.doctor import report
from controlplane.doctor.checks import TITLES, checks_of
from controlplane.doctor.examining import Examinations
from controlplane.doctor.place import Place, place_find


def doctor(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> int:
    token = environ.get("LUMINET_TOKEN", "").strip()
    try:
        place = _place(options, environ, token)
    except ClientError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    wanted = [one for one in checks_of(place, token) if not options.area or one.area in options.area]
    under_way = Examinations(wanted, options.seconds)
    with working(under_way.progress):
        found = under_way.findings()
    paper = Paper()
    if options.json:
        paper.json(report.as_json(found))
    else:
        report.as_text(paper, f"Luminet {version()}: {place.words}", TITLES, found)
    return report.exit_status(found)


def _place(options: argparse.Namespace, environ: Mapping[str, str], token: str) -> Place:
    """A token travels to where it may; without one there is nothing to lose."""
    place = place_find(environ, home=options.home, url=options.url or "", is_deep=options.deep)
    place = replace(place, seconds=options.seconds)
    if options.deep and place.kind in ("agent", "remote"):
        raise ClientError("--deep walks the audit trail in its database, and none is known here: run it beside web")
    if place.kind != "remote":
        return place
    return replace(place, url=url_checked(place.url, insecure=options.insecure or not token))
