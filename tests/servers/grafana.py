"""The dashboard of deploy/grafana, as tests look at it."""

import json
import re
from typing import Any, Final

from tests.compose.files import CHECKOUT

DASHBOARD: Final[dict[str, Any]] = json.loads((CHECKOUT / "deploy/grafana/luminet.json").read_text(encoding="utf-8"))
PANELS: Final[list[dict[str, Any]]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
ROWS: Final[list[str]] = [one["title"] for one in DASHBOARD["panels"] if one["type"] == "row"]
TARGETS: Final[list[dict[str, Any]]] = [target for panel in PANELS for target in panel["targets"]]
SOURCE, *_CHOICES = DASHBOARD["templating"]["list"]
# What can be chosen at the top: of which series it is which label.
CHOICES: Final[dict[str, tuple[str, str]]] = {
    one["name"]: re.fullmatch(r"label_values\((\w+), (\w+)\)", one["definition"]).groups()  # type: ignore[union-attr,misc]
    for one in _CHOICES
}
