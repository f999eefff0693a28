"""The engine as a process on the GPU, asked by one client, for rows E2 and H3."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_agent.tools.savings.plan import Plan
from tests.bench import Bench
from tests.bench.engine_asking import Side, asking
from tests.bench.engine_serving import POOL_BYTES, our_engine
from tests.bench.gpu.setting import Setting
from tests.bench.rows.engine import CONTEXT_TOKENS, MODEL, POLICY, VOCABULARY, checkpoint
from tests.bench.rows.engine_demo import record_savings

WARM_UP = 2  # the first of each kind of prompt compiles what it needs
FORMATS = ("bf16", "fp8")


def record_hits(bench: Bench, setting: Setting) -> None:
    tokens, samples = setting.sizes.prompt_tokens, bench.repetitions(setting.sizes.repetitions)
    with _serving(setting) as side:
        for name in FORMATS:
            asked = side.of_format(name)
            for _ in range(WARM_UP):
                asked.hit_ms(tokens)
            sample = lambda asked=asked: asked.hit_ms(tokens)  # noqa: E731
            figure = f"hit, {tokens:,} tokens, pages in {name}"
            bench.measure(figure, unit="ms", sample=sample, repetitions=samples, parameters=MODEL)
            bench.record(f"hit ÷ cold, pages in {name}", unit="×", values=asked.hit_of_cold(samples))


def record_savings_on(bench: Bench, setting: Setting) -> None:
    sizes = setting.sizes
    rounds = bench.repetitions(sizes.repetitions)
    plan = Plan(template_tokens=sizes.template_tokens, rounds=rounds, most_together=sizes.together)
    record_savings(bench, plan, _options(setting))


def _options(setting: Setting) -> tuple[str, ...]:
    return ("--device", setting.device.type, "--pool", str(POOL_BYTES))


@contextmanager
def _serving(setting: Setting) -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="luminet-bench-") as name, asking() as asker:
        folder = Path(name)
        model, policy = checkpoint(folder / "model"), folder / "policy.json"
        policy.write_text(POLICY, encoding="utf-8")
        options = ("--policy", str(policy), "--context", str(CONTEXT_TOKENS), *_options(setting))
        with our_engine(model, folder, options) as served:
            yield Side(asker, served.server, vocabulary=VOCABULARY)
