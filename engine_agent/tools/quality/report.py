"""Report a run for people: a line for each format and scale set, then the reasons of failures."""

from engine_agent.tools.quality.artefact import Artefact, Figures, Measurement
from engine_agent.tools.report import BOLD, DIM, GREEN, NO_VALUE, RED, YELLOW, aligned, painted
from kernels.formats import FLOOR

HEADS = (
    "format", "scales", "B/token", "ΔPPL/token", "ΔPPL/byte", "95 %", "KL/token", "KL/byte", "KL p99", "top-1",
    "ΔPPL outliers", "KL outliers", "ΔPPL loud", "needle .9", ".95", "hit=miss", "verdict",
)  # fmt: skip
COLOURS = {"passed": GREEN, "failed": RED, "unresolved": YELLOW}
TEXTS = (0, 1, len(HEADS) - 1)  # text columns
CAPTION = (
    "ΔPPL in %, KL in nats, against bf16 (bf16 against fp32, fp32 against attention without pages). B/token: keys and\n"
    "values over all layers. Bounds and the interval are by byte of text, the rest by token. outliers: a few\n"
    "key channels far from zero; loud: keys beyond what E4M3 holds."
)


def label(measurement: Measurement) -> str:
    return "calibrated" if measurement.is_calibrated else "neutral"


def headline(artefact: Artefact) -> str:
    return " · ".join(
        (
            f"model {artefact.model_revision[:12]}",
            f"{artefact.documents} documents in windows of {artefact.window_tokens:,} tokens",
            f"calibrated on {artefact.calibration_tokens:,} others",
            f"{artefact.backend}, {artefact.device}",
            f"{artefact.seconds:,.0f} s",
            *(["quick: too little to decide by"] if artefact.is_quick else []),
        )
    )


def table(artefact: Artefact, *, is_colourful: bool = False) -> str:
    rows = [_cells(measurement, is_colourful) for measurement in artefact.measurements]
    heads, *lines = aligned([HEADS, *rows], left=TEXTS)
    top = [painted(CAPTION, DIM, is_colourful), painted(heads, BOLD, is_colourful)]
    return "\n".join([*top, *lines, "", *remarks(artefact)])


def remarks(artefact: Artefact) -> list[str]:
    """Return the reasons why formats did not pass, and whether the suite itself is valid."""
    reasons = []
    for measurement in artefact.measurements:
        reasons += [f"{measurement.kv_format}, {label(measurement)}: {text}" for text in measurement.shortcomings]
    if not artefact.is_control_rejected:
        reasons.append("The control (int2) was not rejected: this run is blind, and says nothing of any format.")
    if not artefact.is_floor_passed:
        floor = " or ".join(FLOOR)
        reasons.append(f"{floor} did not pass: something is wrong with all formats alike, and none may be served.")
    return reasons


def _cells(measurement: Measurement, is_colourful: bool) -> list[str]:
    plain, outliers, loud = (measurement.axes.get(axis) for axis in ("plain", "outliers", "loud"))
    assert plain is not None
    return [
        measurement.kv_format,
        "–" if measurement.kv_format in FLOOR else label(measurement),
        f"{measurement.token_bytes:,}",
        _signed(plain.delta_percent),
        _signed(plain.byte_delta_percent),
        f"{_signed(plain.byte_delta_percent_low)} … {_signed(plain.byte_delta_percent_high)}",
        _small(plain.divergence),
        _small(plain.byte_divergence),
        _small(plain.divergence_p99),
        f"{100 * plain.agreement:.2f} %",
        _delta(outliers),
        _small(outliers.divergence) if outliers else NO_VALUE,
        _delta(loud),
        *(f"{100 * share:.1f}" for share in measurement.needle.values()),
        "yes" if measurement.hit_equals_miss else "no",
        painted(measurement.verdict, COLOURS[measurement.verdict], is_colourful),
    ]


def _delta(figures: Figures | None) -> str:
    return _signed(figures.delta_percent) if figures else NO_VALUE


def _signed(value: float) -> str:
    """Return the value with three significant digits, without rounding to zero."""
    return f"{value:+.3f}" if abs(value) < 9.9995 else f"{value:+,.1f}" if abs(value) < 99_999 else f"{value:+.1e}"


def _small(value: float) -> str:
    return f"{value:.1e}"
