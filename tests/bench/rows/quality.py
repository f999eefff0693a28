"""Q1: what each KV format costs in quality on the demo model, plain and with outlier channels in every key."""

from engine_agent.tools.quality.artefact import Artefact, Measurement
from engine_agent.tools.quality.command import MODEL, TEXT
from engine_agent.tools.quality.gates import GATES
from engine_agent.tools.quality.report import label
from engine_agent.tools.quality.suite import PLAIN, Plan, control_checks, measure
from kernels.formats import CONTROL
from tests.bench import Bench, Target, row

TARGETS = ("int8", "fp8_e4m3", "fp8", "k8v4", "int4", "nvfp4")  # what NUMBERS.md names


@row(
    "Q1",
    title="Quality of each KV format on the demo model: ΔPPL and mean KL against bf16, by byte of text",
    target="int8 0.05 %, fp8_e4m3 0.1 %, fp8 0.2 %, k8v4 0.3 %, int4 1 %, nvfp4 1.5 %, plain; int2 must fail",
)
def quality(bench: Bench) -> None:
    if not MODEL.exists():
        bench.skip("the demo model is not there: python -m engine_agent.tools.training.train makes it")
    artefact = measure(MODEL, TEXT, Plan())
    for one in artefact.measurements:
        for axis in one.axes:
            _recorded(bench, one, axis)
    for what, is_rejected in control_checks(artefact.measurements):
        bench.record(f"{CONTROL} fails: {what}", unit="", values=[float(is_rejected)], target=Target("==", 1))
    hits = [float(one.hit_equals_miss) for one in artefact.measurements]
    bench.record("prefix hit equals miss, all formats", unit="", values=hits, target=Target("==", 1, of="min"))
    bench.record("the suite", unit="s", values=[artefact.seconds], parameters=_parameters(artefact))


def _recorded(bench: Bench, one: Measurement, axis: str) -> None:
    figures = one.axes[axis]
    name = f"{one.kv_format}, {label(one)}, {axis}"
    bound = GATES[one.kv_format].delta_percent if axis == PLAIN and one.kv_format in TARGETS else None
    bench.record(
        f"ΔPPL by byte of {name}",
        unit="%",
        values=[figures.byte_delta_percent],
        target=None if bound is None else Target("<=", bound),
        parameters={
            "low": figures.byte_delta_percent_low,
            "high": figures.byte_delta_percent_high,
            "by token": figures.delta_percent,
            "KL": figures.divergence,
            "KL p99": figures.divergence_p99,
            "top-1 agreement": figures.agreement,
            "bytes per token": one.token_bytes,
            "documents": figures.documents,
            "tokens": figures.tokens,
            "verdict": one.verdict,
            **{f"needle {cosine}": share for cosine, share in one.needle.items()},
        },
    )
    bench.record(f"ΔPPL by token of {name}", unit="%", values=[figures.delta_percent])
    bench.record(
        f"KL by byte of {name}",
        unit="nats",
        values=[figures.byte_divergence],
        parameters={"by token": figures.divergence},
    )


def _parameters(artefact: Artefact) -> dict[str, str | int | float]:
    return {
        "model": artefact.model_revision[:12],
        "backend": artefact.backend,
        "documents": artefact.documents,
        "tokens of a window": artefact.window_tokens,
        "calibrated on": artefact.calibration_tokens,
        "bytes per token": round(artefact.bytes_per_token, 2),
    }
