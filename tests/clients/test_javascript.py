"""OpenAI's own JavaScript client, which sends `extra_body` as a field of the request."""

import json
import shutil
from pathlib import Path

import pytest

from tests.clients.environment import HERE
from tests.clients.test_typescript import ran
from tests.integration.openai_doors import WAYS, opened
from tests.integration.openai_engine import MODEL
from tests.unit.server.identities import KEY


@pytest.mark.parametrize("way", WAYS)
def test_guide_example_works_word_for_word(node_modules: Path, tmp_path: Path, way: str) -> None:
    shutil.copy(HERE / "guide.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules)
    with opened(way, tmp_path / "journal") as door:
        answer = json.loads(ran(["node", "guide.mjs", f"{door.url}/v1", KEY, MODEL], tmp_path))
    assert (answer["kv_dtype"], answer["cache_hit"]) == ("int4", "0.0")
    assert answer["prompt_tokens"] > 0
