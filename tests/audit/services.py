"""What is known of a version: PyPI's own list of advisories, and npm's. Each is first asked about what is known bad.

A service that knows nothing of that one, as a mirror may, would say of everything that nothing is known.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.audit.pins import Pin

PYPI, NPM = "https://pypi.org", "https://registry.npmjs.org"
SECONDS = 30
THREADS = 4
KNOWN_BAD_PYTHON = Pin("PyPI", "jinja2", "2.4.1")
KNOWN_BAD_NPM = Pin("npm", "lodash", "4.17.15")


class NotHad(Exception):
    """A service does not answer, or does not say what it has to."""


@dataclass(frozen=True, slots=True)
class Advisory:
    pin: Pin
    id: str
    names: frozenset[str]  # all it goes by
    fixed_in: str


@dataclass(frozen=True, slots=True)
class Services:
    pypi: str = PYPI
    npm: str = NPM

    def advisories(self, pins: Sequence[Pin]) -> list[Advisory]:
        """Of all of them. Raises NotHad where that cannot be said of each."""
        python = [pin for pin in pins if pin.ecosystem == "PyPI"]
        others = [pin for pin in pins if pin.ecosystem == "npm"]
        return [*(self._of_python(python) if python else ()), *(self._of_npm(others) if others else ())]

    def _of_python(self, pins: Sequence[Pin]) -> list[Advisory]:
        if not self._python(KNOWN_BAD_PYTHON):
            raise NotHad(f"{self.pypi} knows nothing of {_said(KNOWN_BAD_PYTHON)}, of which much is known")
        with ThreadPoolExecutor(THREADS) as threads:
            return [one for found in threads.map(self._python, pins) for one in found]

    def _python(self, pin: Pin) -> list[Advisory]:
        told = _asked(f"{self.pypi}/pypi/{pin.name}/{pin.version}/json")
        listed = told.get("vulnerabilities") if isinstance(told, dict) else None
        if not isinstance(listed, list):
            raise NotHad(f"{self.pypi} says nothing of vulnerabilities of {_said(pin)}")
        return [_of_pypi(pin, one) for one in listed if not one.get("withdrawn")]

    def _of_npm(self, pins: Sequence[Pin]) -> list[Advisory]:
        asked: dict[str, list[str]] = {}
        for pin in (KNOWN_BAD_NPM, *pins):
            asked.setdefault(pin.name, []).append(pin.version)
        told = _asked(f"{self.npm}/-/npm/v1/security/advisories/bulk", asked)
        if not isinstance(told, dict) or not told.get(KNOWN_BAD_NPM.name):
            raise NotHad(f"{self.npm} knows nothing of {_said(KNOWN_BAD_NPM)}, of which much is known")
        return [_of_npms(pin, one) for pin in pins for one in told.get(pin.name, ())]


def _said(pin: Pin) -> str:
    return f"{pin.name} {pin.version}"


def _of_pypi(pin: Pin, told: Mapping[str, Any]) -> Advisory:
    names = frozenset({str(told["id"]), *map(str, told.get("aliases") or ())})
    return Advisory(pin, str(told["id"]), names, ", ".join(map(str, told.get("fixed_in") or ())))


def _of_npms(pin: Pin, told: Mapping[str, Any]) -> Advisory:
    id_ = str(told.get("url", told.get("id"))).rpartition("/")[2]
    return Advisory(pin, id_, frozenset({id_}), f"not {told.get('vulnerable_versions', 'said')}")


def _asked(url: str, body: object = None) -> Any:
    """Raises NotHad."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"accept": "application/json", "content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as problem:
        raise NotHad(f"{url} answers {problem.code}") from None
    except (OSError, ValueError) as problem:
        raise NotHad(f"{url} does not answer: {getattr(problem, 'reason', problem)}") from None
