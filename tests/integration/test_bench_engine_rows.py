"""E2, E3, E5, E6 and H3: what both sides are asked, what is counted, and what a row keeps where there is no vLLM."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from controlplane.stack.environments import Unavailable
from engine_agent.engine.config import read_config
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.savings.measuring import Found, Measured
from engine_agent.tools.savings.plan import SIDES, Plan
from engine_agent.tools.savings.result import Result
from tests.bench.engine_asking import Asker, Failed, Side, asking, decode_rate
from tests.bench.engine_model import FIRST_ORDINARY, VOCABULARY, write_model
from tests.bench.engine_worker import Stopwatch
from tests.bench.registry import REGISTRY
from tests.bench.rows import engine, engine_demo
from tests.bench.running import run_row
from tests.bench.workers import worker_running
from tests.unit.loadgen.openai_server import MODEL, Scripted
from tests.unit.loadgen.test_command import served

ROW = {row.key: row for row in REGISTRY.rows()}


def outcome(*, sent: float, ttft: float, gap: float, pieces: int, tokens: int) -> Outcome:
    gaps = (gap,) * (pieces - 1)
    return Outcome(sent, ttft_seconds=ttft, gaps_seconds=gaps, seconds=ttft + sum(gaps), output_tokens=tokens)


# --- the model --------------------------------------------------------------------------------------------------------


def test_the_model_is_what_the_rows_say_it_is(tmp_path: Path) -> None:
    config = read_config(write_model(tmp_path))
    said = engine.MODEL
    assert (config.layers, config.hidden_size, config.head_size) == (said["layers"], said["hidden"], said["head size"])
    assert f"{config.heads}/{config.kv_heads}" == said["heads"]
    assert config.max_positions >= engine.CONTEXT_TOKENS
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == config.vocab_size == VOCABULARY
    assert engine.VOCABULARY == (FIRST_ORDINARY, VOCABULARY - 1)


# --- both sides -------------------------------------------------------------------------------------------------------


@pytest.fixture
def asker() -> Iterator[Asker]:
    with asking() as found:
        yield found


def test_both_sides_are_asked_the_same_prompts(asker: Asker) -> None:
    scripted = Scripted(), Scripted()
    with served(scripted[0]) as ours, served(scripted[1]) as theirs:
        for url in (ours, theirs):
            side = Side(asker, Server(url, MODEL), vocabulary=(3, 90))
            side.hit_ms(40)
            side.cold_ms(20)
            with suppress(Failed):  # such quick answers need not overlap
                side.decode_rate(2, prompt_tokens=10, output_tokens=3)
    first, second = ([body["prompt"] for body in one.bodies] for one in scripted)
    assert first == second
    assert first[0] == first[1] != first[2]
    assert [len(prompt) for prompt in first] == [40, 40, 20, 10, 10, 10, 10]


def test_a_hit_is_set_beside_the_cold_prompt_it_repeats(asker: Asker) -> None:
    with served(Scripted()) as url:
        side = Side(asker, Server(url, MODEL), vocabulary=(3, 90))
        hits = [side.hit_ms(40) for _ in range(3)]
    assert [one.cached_tokens for one in side.cold] == [0, 0, 0]
    assert [one.cached_tokens for one in side.hits] == [39, 39, 39]
    colds = [1000 * (one.ttft_seconds or 0.0) for one in side.cold]
    assert side.hit_of_cold(2) == pytest.approx([hits[1] / colds[1], hits[2] / colds[2]])


def test_another_format_is_asked_of_the_same_server(asker: Asker) -> None:
    scripted = Scripted()
    with served(scripted) as url:
        Side(asker, Server(url, MODEL), vocabulary=(3, 90)).of_format("fp8").cold_ms(10)
    assert scripted.bodies[0]["kv_cache_dtype"] == "fp8"


def test_a_request_that_fails_is_no_figure(asker: Asker) -> None:
    with served(Scripted(key="secret")) as url, pytest.raises(Failed, match="HTTP 401"):
        Side(asker, Server(url, MODEL), vocabulary=(3, 90)).cold_ms(10)


def test_decoding_counts_only_while_all_decode() -> None:
    early = outcome(sent=0.0, ttft=0.1, gap=0.1, pieces=21, tokens=21)  # from 0.1 s to 2.1 s
    late = outcome(sent=0.0, ttft=1.1, gap=0.1, pieces=21, tokens=21)  # from 1.1 s to 3.1 s
    assert decode_rate([early, late]) == pytest.approx(20, rel=0.06)


def test_a_piece_of_several_tokens_counts_as_so_many() -> None:
    one = outcome(sent=0.0, ttft=0.1, gap=0.2, pieces=11, tokens=22)
    assert decode_rate([one]) == pytest.approx(10)


def test_answers_that_do_not_overlap_have_no_rate() -> None:
    before = outcome(sent=0.0, ttft=0.1, gap=0.1, pieces=3, tokens=3)
    with pytest.raises(Failed, match="did not overlap"):
        decode_rate([before, outcome(sent=5.0, ttft=0.1, gap=0.1, pieces=3, tokens=3)])


# --- the rows ---------------------------------------------------------------------------------------------------------


class NoVllm:
    def ready_python(self) -> Path:
        raise Unavailable("no wheel for this machine")


def test_without_vllm_ours_is_measured_and_the_row_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "VLLM", NoVllm())
    monkeypatch.setattr(engine, "PROMPT_TOKENS", 64)
    monkeypatch.setattr(engine, "checkpoint", lambda folder: engine_demo.DEMO)
    monkeypatch.setattr(engine, "VOCABULARY", engine_demo.DEMO_VOCABULARY)
    result = run_row(ROW["E2"], repetitions=2)
    assert result.error is None
    assert result.status == "not measured"
    assert "no wheel for this machine" in (result.skipped or "")
    figures = {figure.name: figure for figure in result.figures}
    assert figures["hit, 64 tokens"].theirs is None
    assert figures["hit, 64 tokens"].is_met is None
    assert len(figures["hit ÷ cold, ours"].ours.samples) == 2
    assert result.notes == ("ours: cached tokens of hits 48, of cold prompts 0, of 64 each",)


def test_bookkeeping_is_part_of_the_time_to_first_token() -> None:
    with worker_running(
        (sys.executable, "-m", engine.WORKER, str(engine_demo.DEMO)), {"OMP_NUM_THREADS": "1"}
    ) as worker:
        for namespace in (engine.CACHING, engine.PLAIN):
            found = worker.ask(namespace=namespace, tokens=64)
            assert 0 < found["bookkeeping_us"] < found["ttft_us"]
            assert found["calls"] > 4
            assert found["cached_tokens"] == 0


def test_the_guides_figures_stand_beside_ours() -> None:
    answers = [Outcome(0.0, ttft_seconds=0.1 * number, prompt_tokens=6064) for number in (1, 2)]
    found = Found({side: Measured(list(answers)) for side in SIDES}, bound_ms=100.0)
    result = Result(Server("http://127.0.0.1:1/v1", MODEL), Plan(), found, "a machine")
    assert {saved.name for saved in result.times} == set(engine_demo.GUIDE)
    assert [saved.share.value for saved in result.times] == [0.0, 0.0]


# --- the stopwatch ----------------------------------------------------------------------------------------------------


class Inner:
    def work(self) -> int:
        return sum(range(2_000))


class Outer:
    def __init__(self) -> None:
        self.inner = Inner()

    def work(self) -> int:
        return self.inner.work() + self._hidden()

    def _hidden(self) -> int:
        return 1

    @property
    def value(self) -> int:
        return self.inner.work()


def test_a_call_inside_another_is_timed_once() -> None:
    watch, outer = Stopwatch(), Outer()
    watch.watch(Inner, Outer)
    assert outer.work() == outer.value + 1
    assert watch.calls == 2
    alone = watch.seconds
    assert alone > 0
    outer._hidden()
    assert (watch.calls, watch.seconds) == (2, alone)
