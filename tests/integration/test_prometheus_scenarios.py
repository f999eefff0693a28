"""Prometheus' own promtool runs the scenarios of our alert rules. What the rules say is in tests/contract."""

import re
import shutil
from pathlib import Path

from tests.servers.prometheus_rules import FOLDER, RULES, RULES_FILE, TESTS_FILE
from tests.servers.promtool import judged


def test_every_rule_fires_in_its_scenario_and_is_quiet_in_the_other() -> None:
    done = judged("test", "rules", TESTS_FILE, cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_that_never_fire_would_be_found(tmp_path: Path) -> None:
    """Each scenario is about its own rule: with nothing in place of what they ask, every one of them fails."""
    shutil.copy(FOLDER / TESTS_FILE, tmp_path)
    rules = (FOLDER / RULES_FILE).read_text()
    spoilt, count = re.subn(r"expr: .*?(?=\n    for:)", "expr: vector(0) > 1", rules, flags=re.DOTALL)
    (tmp_path / RULES_FILE).write_text(spoilt)
    done = judged("test", "rules", TESTS_FILE, cwd=tmp_path)
    assert done.returncode != 0
    assert count == len(RULES)
    assert [name for name in RULES if name not in done.stdout + done.stderr] == []
