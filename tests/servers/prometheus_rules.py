"""The rules of deploy/prometheus, as tests look at them."""

from typing import Any, Final

import yaml

from tests.compose.files import CHECKOUT

FOLDER: Final = CHECKOUT / "deploy/prometheus"
RULES_FILE: Final = "luminet.rules.yml"
TESTS_FILE: Final = "luminet.tests.yml"
(_GROUP,) = yaml.safe_load((FOLDER / RULES_FILE).read_text(encoding="utf-8"))["groups"]
RULES: Final[dict[str, dict[str, Any]]] = {rule["alert"]: rule for rule in _GROUP["rules"]}
