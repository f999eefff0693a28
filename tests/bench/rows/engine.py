"""E2, E3 and E5: the engine as a process with an OpenAI face, beside vLLM's with the same checkpoint and prompts.

Both have one thread for the model, compute eagerly, keep keys and values in bf16, and are asked by one client in turns,
with token ids. torch is loaded in processes of its own alone.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run

from controlplane.stack.environments import Unavailable
from controlplane.stack.vllm_env import VLLM
from tests.bench import Bench, Target, row
from tests.bench.engine_asking import Side, asking
from tests.bench.engine_serving import POOL_BYTES, THEIRS, our_engine, vllm_server
from tests.bench.figures import Parameters
from tests.bench.measuring import Sample
from tests.bench.workers import Worker, worker_running

PROMPT_TOKENS = 4096
CONTEXT_TOKENS = 8192
TOGETHER, DECODED_PROMPT, DECODED_TOKENS = 8, 1024, 128
SAMPLES = 10
WRITER = (
    "import sys; from pathlib import Path; from tests.bench.engine_model import write_model; "
    "write_model(Path(sys.argv[1]))"
)
POLICY = '{"kv_dtype": "bf16", "request_kv_dtypes": ["fp8"]}'
MODEL: Parameters = {"layers": 8, "hidden": 512, "heads": "8/2", "head size": 64, "weights": "bf16", "threads": 1}
VOCABULARY = (3, 8191)


@dataclass(slots=True)
class Pair:
    """Both servers; no vLLM where there is none, and why."""

    ours: Side
    theirs: Side | None
    missing: str = ""

    def sides(self) -> dict[str, Side]:
        return {"ours": self.ours} | ({THEIRS: self.theirs} if self.theirs else {})


@row(
    "E2",
    title="Time to first token of a full hit ÷ a cold prompt, 4,096 tokens, 8 layers × 512",
    target="≤ 1/40, and a hit no slower than vLLM's",
    beside=f"{THEIRS} on a CPU",
)
def hits(bench: Bench) -> None:
    samples = bench.repetitions(SAMPLES)
    with _pair() as pair:
        _both(bench, pair, f"hit, {PROMPT_TOKENS:,} tokens", "ms", _hit, Target("<=", 1.0))
        for name, side in pair.sides().items():
            target = Target("<=", 1 / 40) if side is pair.ours else None
            bench.record(f"hit ÷ cold, {name}", unit="×", values=side.hit_of_cold(samples), target=target)
            bench.note(f"{name}: {_found(side, samples)}")
        fp8 = pair.ours.of_format("fp8")
        bench.measure("hit, pages in fp8, ours", unit="ms", sample=_hit(fp8), repetitions=SAMPLES)
        bench.record("hit ÷ cold, pages in fp8, ours", unit="×", values=fp8.hit_of_cold(samples))
        _skip_alone(bench, pair)


@row(
    "E3",
    title="Cold time to first token, and decoding with 8 at once, 8 layers × 512",
    target="≤ 1.3 × · ≥ 0.8 × tokens/s",
    beside=f"{THEIRS} on a CPU",
)
def cold_and_decoding(bench: Bench) -> None:
    sizes: Parameters = {"at once": TOGETHER, "prompt tokens": DECODED_PROMPT, "answer tokens": DECODED_TOKENS}
    with _pair() as pair:
        _both(bench, pair, f"cold, {PROMPT_TOKENS:,} tokens", "ms", _cold(PROMPT_TOKENS), Target("<=", 1.3))
        _both(bench, pair, "cold, 512 tokens", "ms", _cold(512))
        _both(bench, pair, f"decoding, {TOGETHER} at once", "tokens/s", _decoding, Target(">=", 0.8), sizes)
        fp8 = pair.ours.of_format("fp8")
        bench.measure("cold, pages in fp8, ours", unit="ms", sample=_cold(PROMPT_TOKENS)(fp8), repetitions=SAMPLES)
        bench.measure("decoding, pages in fp8, ours", unit="tokens/s", sample=_decoding(fp8), repetitions=SAMPLES)
        bench.note("decoding: output tokens between the last first token and the first end, prompts cached beforehand")
        _skip_alone(bench, pair)


def _hit(side: Side) -> Sample:
    return lambda: side.hit_ms(PROMPT_TOKENS)


def _cold(tokens: int) -> Callable[[Side], Sample]:
    return lambda side: lambda: side.cold_ms(tokens)


def _decoding(side: Side) -> Sample:
    return lambda: side.decode_rate(TOGETHER, prompt_tokens=DECODED_PROMPT, output_tokens=DECODED_TOKENS)


def _both(
    bench: Bench,
    pair: Pair,
    name: str,
    unit: str,
    sampled: Callable[[Side], Sample],
    target: Target | None = None,
    sizes: Parameters = MODEL,
) -> None:
    """Beside vLLM where there is one, else ours alone and without a verdict."""
    if pair.theirs is None:
        bench.measure(name, unit=unit, sample=sampled(pair.ours), repetitions=SAMPLES, parameters=sizes)
        return
    bench.compare(
        name,
        unit=unit,
        ours=sampled(pair.ours),
        theirs=sampled(pair.theirs),
        theirs_name=THEIRS,
        repetitions=SAMPLES,
        target=target,
        parameters=sizes,
    )


def _found(side: Side, samples: int) -> str:
    """What shows that hits were hits."""
    hits, cold = ([one.cached_tokens for one in all_[-samples:]] for all_ in (side.hits, side.cold))
    return f"cached tokens of hits {_values(hits)}, of cold prompts {_values(cold)}, of {PROMPT_TOKENS:,} each"


def _values(counts: list[int | None]) -> str:
    return " and ".join(sorted({"not told" if count is None else f"{count:,}" for count in counts}))


def _skip_alone(bench: Bench, pair: Pair) -> None:
    if pair.theirs is None:
        bench.skip(f"ours alone, because there is no {THEIRS} here to compare with: {pair.missing}")


def checkpoint(folder: Path) -> Path:
    """Written by a process of its own, for torch."""
    run((sys.executable, "-c", WRITER, str(folder)), check=True, cwd=Path(__file__).parents[3])
    return folder


@contextmanager
def _pair() -> Iterator[Pair]:
    """Both servers with one checkpoint, written for them; gone with all their files at the end."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="luminet-bench-")))
        model, policy = checkpoint(folder / "model"), folder / "policy.json"
        policy.write_text(POLICY, encoding="utf-8")
        asker = opened.enter_context(asking())
        try:
            python = VLLM.ready_python()
        except Unavailable as problem:
            theirs, missing = None, str(problem)
        else:
            server = opened.enter_context(vllm_server(python, model, folder, context_tokens=CONTEXT_TOKENS))
            theirs = Side(asker, server.server, vocabulary=VOCABULARY, rest=server.rest)
            missing = ""
        options = ("--policy", str(policy), "--context", str(CONTEXT_TOKENS), "--pool", str(POOL_BYTES))
        ours = opened.enter_context(our_engine(model, folder, options))
        yield Pair(Side(asker, ours.server, vocabulary=VOCABULARY, rest=ours.rest), theirs, missing)


# E5

WORKER = "tests.bench.engine_worker"
CACHING, PLAIN = "caching", "plain"


@row("E5", title="Bookkeeping of prompts that hit nothing, as a share of their time to first token", target="≤ 1 %")
def bookkeeping(bench: Bench) -> None:
    with worker_running((sys.executable, "-m", WORKER), {"OMP_NUM_THREADS": "1"}) as worker:
        for tokens in (PROMPT_TOKENS, 512):
            figure = bench.measure(
                f"share of the time to first token, {tokens:,} tokens",
                unit="%",
                sample=lambda tokens=tokens: _share(worker, tokens),  # type: ignore[misc]
                repetitions=SAMPLES,
                target=Target("<=", 1.0),
                parameters=MODEL,
            )
            assert figure.ours.samples
        bench.compare(
            "time to first token, caching ÷ a namespace that does not cache",
            unit="ms",
            ours=lambda: _ttft_ms(worker, CACHING),
            theirs=lambda: _ttft_ms(worker, PLAIN),
            theirs_name="prefix_caching off",
            repetitions=SAMPLES,
            parameters={"tokens": 512},
        )
    bench.note("bookkeeping: every call into the block manager and its waiting room, timed in the engine's own thread")


def _share(worker: Worker, tokens: int) -> float:
    found = worker.ask(namespace=CACHING, tokens=tokens)
    assert not found["cached_tokens"]
    return 100 * float(found["bookkeeping_us"]) / float(found["ttft_us"])


def _ttft_ms(worker: Worker, namespace: str) -> float:
    return float(worker.ask(namespace=namespace, tokens=512)["ttft_us"]) / 1000
