"""Names what is vulnerable, and ends with 1; with 3 where that could not be had: not known is not none."""

import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime

from tests.audit.exceptions import BadException, Borne, exceptions_read
from tests.audit.pins import Pin, pins_all
from tests.audit.services import Advisory, NotHad, Services
from tests.vllm.environment import FAILED, NOT_RUN, PASSED, banner


def audit(pins: Sequence[Pin], borne: Sequence[Borne], *, services: Services, today: date) -> int:
    print(f"luminet: asking about {len(pins)} pinned packages", flush=True)
    try:
        found = services.advisories(pins)
    except NotHad as why:
        print(
            banner(f"NOTHING WAS AUDITED: {why}.", "Whether a pin has a known vulnerability is not known."),
            file=sys.stderr,
        )
        return NOT_RUN
    holding = [one for one in borne if one.until >= today]
    open_ones = [one for one in found if not any(_is_borne(one, each) for each in holding)]
    for one in found:
        print(_line(one, is_open=one in open_ones))
    for unused in (one for one in borne if not any(_is_borne(each, one) for each in found)):
        print(f"luminet: the exception for {unused.id} of {unused.package} is not needed any more: take it out")
    print(f"luminet: {len(open_ones)} known vulnerabilities to mend, {len(found) - len(open_ones)} borne for a while")
    return FAILED if open_ones else PASSED


def _is_borne(advisory: Advisory, borne: Borne) -> bool:
    return borne.package == advisory.pin.name and borne.id in advisory.names


def _line(one: Advisory, *, is_open: bool) -> str:
    names = ", ".join(sorted(one.names))
    fixed = f"mended in {one.fixed_in}" if one.fixed_in else "not mended yet"
    return f"{'VULNERABLE' if is_open else 'borne'}: {one.pin.name} {one.pin.version}: {names}: {fixed}"


def main() -> int:
    try:
        return audit(pins_all(), exceptions_read(), services=Services(), today=datetime.now(UTC).date())
    except BadException as problem:
        print(f"luminet: {problem}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    raise SystemExit(main())
