"""Whatever is sent, the answer is an answer or a clear refusal, and nothing stays behind."""

from tests.unit.server.asking import Asker
from tests.unit.server.fuzzing import fuzz
from tests.unit.server.scripted import ScriptedBackend


async def test_no_body_makes_the_server_fail(asker: Asker, backend: ScriptedBackend) -> None:
    statuses = await fuzz(asker, bodies=2_000, seed=6)
    assert statuses[200] > 200, "most bodies are so wrong that nothing behind the schema is tried"
    assert statuses[400] > 500
    assert not backend.live
