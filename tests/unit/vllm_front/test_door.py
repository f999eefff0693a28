"""What leaves for vLLM's engine says whose it is, whatever a client wrote, and what comes back of it stays with us."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from engine_agent.backends.vllm.asked import FIELD, Asked, admission_packed
from engine_agent.engine.outputs import Admission
from engine_agent.vllm_front.ask import CURRENT, Ask
from engine_agent.vllm_front.door import EngineDoor
from engine_agent.vllm_front.whose import Caller

ADMISSION = Admission(10, 0, "bf16", 1, "cold", {"tail": 10})
FORGED = {FIELD: {"namespace": "bolt"}, "kv_transfer_params": {"do_remote_prefill": True}, "kept": 1}


@dataclass
class Client:
    """vLLM's, as far as the door goes."""

    sent: list[Any] = field(default_factory=list)
    processed: list[Any] = field(default_factory=list)
    under_way: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine_core = SimpleNamespace(add_request_async=self._add, call_utility_async=None)
        self.output_processor = SimpleNamespace(
            process_outputs=self._process,
            propagate_error=lambda problem: None,
            abort_requests=self._abort,
            request_states=self.under_way,
        )

    def generate(self, prompt: str) -> str:
        return prompt

    async def add_request(self, problem: Exception) -> None:
        raise problem

    async def _add(self, request: Any) -> None:
        self.sent.append(request)
        self.under_way[request.request_id] = request

    def _abort(self, request_ids: list[str]) -> None:
        for one in request_ids:
            del self.under_way[one]

    def _process(self, outputs: list[Any]) -> None:
        self.processed += outputs


def request(number: int = 0, salt: str | None = None) -> Any:
    params = SimpleNamespace(extra_args=dict(FORGED))
    return SimpleNamespace(request_id=f"{number}_r-1", external_req_id="r", cache_salt=salt, sampling_params=params)


def output(said: object, *, finish: object = None) -> Any:
    return SimpleNamespace(request_id="0_r-1", kv_transfer_params={FIELD: said}, finish_reason=finish)


@pytest.fixture
def ask() -> Any:
    ask = Ask(Caller("acme", "acme", elsewhere_tokens=32))
    token = CURRENT.set(ask)
    yield ask
    CURRENT.reset(token)


async def test_what_a_client_wrote_is_written_over(ask: Ask) -> None:
    client = Client()
    door = EngineDoor(client)
    mine = request(salt="s")
    params = mine.sampling_params
    await client.engine_core.add_request_async(mine)
    extra = client.sent[0].sampling_params.extra_args
    assert extra.keys() == {FIELD, "kept"}
    assert Asked.unpacked(extra) == Asked("acme", salt=b"s".hex(), elsewhere_tokens=32, is_told=True, front=door.secret)
    assert params.extra_args == FORGED  # others may share it


async def test_what_is_nobodys_says_so() -> None:
    client = Client()
    EngineDoor(client)
    await client.engine_core.add_request_async(request())
    assert client.sent[0].sampling_params.extra_args == {"kept": 1}


async def test_vllms_own_salt_is_keyed_and_by_namespace(ask: Ask) -> None:
    client = Client()
    EngineDoor(client)
    for caller in (Caller("acme", "acme"), Caller("bolt", "bolt")):
        ask.caller = caller
        await client.engine_core.add_request_async(request(salt="s"))
        await client.engine_core.add_request_async(request())
    salts = [one.cache_salt for one in client.sent]
    assert len(set(salts)) == 4
    assert all(len(salt) == 64 for salt in salts)


async def test_further_choices_of_a_prompt_are_its_siblings(ask: Ask) -> None:
    client = Client()
    EngineDoor(client)
    for number in range(2):
        await client.engine_core.add_request_async(request(number))
    first, second = (Asked.unpacked(one.sampling_params.extra_args) for one in client.sent)
    assert first
    assert second
    assert (first.kind, first.is_told, second.kind, second.is_told) == ("customer", True, "sibling", False)


async def test_an_admission_is_taken_off_and_an_end_goes_on_without_it(ask: Ask) -> None:
    client = Client()
    EngineDoor(client)
    client.generate("prompt")
    await client.engine_core.add_request_async(request())
    assert not ask.told.is_set()
    client.output_processor.process_outputs([output({"admission": admission_packed(ADMISSION)})])
    assert (ask.admissions, client.processed, ask.told.is_set()) == ([ADMISSION], [], True)
    end = output({"refused": ["UnknownTenant", "", "gone"]}, finish="error")
    await client.engine_core.add_request_async(request())
    client.output_processor.process_outputs([end])
    assert client.processed == [end]
    assert end.kv_transfer_params is None
    assert ask.refusal
    assert ask.refusal.status == 503


async def test_what_was_never_sent_and_what_died_with_the_engine_is_not_waited_for(ask: Ask) -> None:
    client = Client()
    EngineDoor(client)
    client.generate("prompt")
    with pytest.raises(ValueError, match="too long"):
        await client.add_request(ValueError("too long"))
    assert ask.told.is_set()
    client.generate("another")
    await client.engine_core.add_request_async(request())
    assert not ask.told.is_set()
    client.output_processor.propagate_error(RuntimeError("dead"))
    assert ask.told.is_set()
    assert ask.refusal
    assert ask.refusal.status == 500


@pytest.mark.parametrize("is_engines", [False, True])
async def test_what_is_aborted_before_it_is_admitted_is_not_waited_for(ask: Ask, is_engines: bool) -> None:
    client = Client()
    EngineDoor(client)
    client.generate("prompt")
    await client.engine_core.add_request_async(request())
    if is_engines:
        end = SimpleNamespace(request_id="0_r-1", kv_transfer_params=None, finish_reason="abort")
        client.output_processor.process_outputs([end])
        assert client.processed == [end]
    else:
        client.output_processor.abort_requests(["0_r-1"])
    assert ask.told.is_set()
    assert ask.admissions == []


async def test_the_end_of_a_further_choice_tells_nothing_of_another_prompt(ask: Ask) -> None:
    client = Client()
    EngineDoor(client)
    client.generate("prompt")
    for number in range(2):
        await client.engine_core.add_request_async(request(number))
    end = SimpleNamespace(request_id="1_r-1", kv_transfer_params=None, finish_reason="stop")
    client.output_processor.process_outputs([end])
    assert not ask.told.is_set()
