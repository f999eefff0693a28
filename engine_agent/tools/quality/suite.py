"""The quality suite: one model, one text, every KV format with and without calibration, judged.

Every reading uses the same weights and the same tokens, teacher-forced, through the real paged ops. Formats are
compared with `bf16`, bf16 with `fp32`, and fp32 with a forward pass without pages. Three axes: `plain`, `outliers` (a
few key channels far from zero) and, for formats with static scales, `loud` (keys beyond the range of E4M3); see
`injection.py`. None changes the model's results, so all are compared with the plain reading. Verdicts come from the
plain axis, the needle and the hits.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine_agent.engine.calibration import Calibration, load_calibration, scale_set
from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.model import Model, load_model
from engine_agent.engine.weights import model_revision
from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality.artefact import Artefact, Figures, Measurement
from engine_agent.tools.quality.gates import (
    Finding,
    gate_of,
    judged,
    judged_fact,
    judged_share,
    overall,
)
from engine_agent.tools.quality.hits import TOKENS as HIT_TOKENS
from engine_agent.tools.quality.hits import hit_equals_miss
from engine_agent.tools.quality.injection import NOTHING, Injection, loud, outliers
from engine_agent.tools.quality.metrics import Comparison
from engine_agent.tools.quality.needle import COSINES, KEYS, found_share
from engine_agent.tools.quality.observing import calibrate
from engine_agent.tools.quality.reading import DECODED_TOKENS, Reader, hidden_densely
from engine_agent.tools.quality.texts import Texts, read_texts
from engine_agent.tools.quality.versions import backend_of, device_name, versions
from kernels.formats import BASELINE, CONTROL, EXACT, FLOOR, KV_FORMATS, KvFormat
from kernels.layout import PageLayout
from kernels.scales import NEUTRAL, ScaleSet, neutral_scales

DENSE = "without pages"
PLAIN, OUTLIERS, LOUD = "plain", "outliers", "loud"
LOUDNESS = 8 * 448.0  # of the largest key: three powers of two beyond E4M3
ALWAYS = (*FLOOR, CONTROL)
BATCH = 4  # windows read in one batch
WINDOWS = 8  # for the axes that are reported and not judged
MOST_WORKERS = 4
LEAST_DOCUMENTS = 8  # for a decision: with fewer, a bootstrap has too few different samples
AT_ONCE = 256  # tokens whose logits are compared in one batch

Key = tuple[str, bool, str]  # format, is calibrated, axis
OnStep = Callable[[str, int, int], None]  # text, done, total


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of a measurement."""

    formats: tuple[str, ...] = tuple(KV_FORMATS)
    tokens: int = 1536  # in a window
    documents: int | None = None  # None: all
    kept_back: int = 4  # documents for calibration
    needle_keys: int = KEYS
    decoded_tokens: int = DECODED_TOKENS  # in each document
    is_quick: bool = False


QUICK = Plan(tokens=320, documents=4, kept_back=2, needle_keys=512, decoded_tokens=16, is_quick=True)


@dataclass(frozen=True, slots=True)
class Case:
    """One format with one scale set on one axis."""

    kv_format: KvFormat
    axis: str
    is_calibrated: bool
    scales: ScaleSet
    injection: Injection

    @property
    def label(self) -> str:
        return f"{self.kv_format.name}{' calibrated' if self.is_calibrated else ''}, {self.axis}"


@dataclass(slots=True)
class Suite:
    """The state of one run. Call `measure` to start one."""

    model: Model
    revision: str
    plan: Plan
    texts: Texts
    calibrations: dict[str, Calibration]  # by axis
    injections: dict[str, Injection]
    on_step: OnStep
    comparisons: dict[Key, Comparison] = field(default_factory=dict)
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)  # for the progress counters
    cases: list[Case] = field(init=False)  # plain ones first, and references before the others

    def __post_init__(self) -> None:
        formats = [KV_FORMATS[name] for name in dict.fromkeys((*ALWAYS, *self.plan.formats))]
        self.cases = [
            case
            for axis in (PLAIN, OUTLIERS, LOUD)
            for kv_format in formats
            for case in self._cases_of(kv_format, axis)
        ]

    @property
    def device(self) -> torch.device:
        return self.model.embedding.device

    @property
    def plain_cases(self) -> list[Case]:
        return [case for case in self.cases if case.axis == PLAIN]

    @property
    def batches(self) -> Sequence[Tensor]:
        """Return windows of documents, [windows, tokens] each."""
        batches: Sequence[Tensor] = self.texts.judged.to(self.device).split(BATCH)
        return batches

    def layout(self, kv_format: KvFormat) -> PageLayout:
        config = self.model.config
        return PageLayout(kv_format, config.layers, config.kv_heads, config.head_size)

    def _cases_of(self, kv_format: KvFormat, axis: str) -> Iterator[Case]:
        if axis == LOUD and not kv_format.key.has_static_scale:
            return
        neutral = neutral_scales(self.layout(kv_format), self.device)
        yield Case(kv_format, axis, False, neutral, self.injections[axis])
        calibrated = scale_set(self.calibrations[axis], kv_format).to(self.device)
        if kv_format.name != CONTROL and calibrated.digest != NEUTRAL:
            yield Case(kv_format, axis, True, calibrated, self.injections[axis])

    def read(self) -> None:
        """Read all text in all cases, a few windows at a time.

        Only the last layer's outputs are stored: logits are larger by the ratio of the vocabulary to a layer.
        """
        with self._pool() as pool:
            for compared in pool.map(self._read_batch, range(len(self.batches))):
                for key, comparison in compared.items():
                    self.comparisons.setdefault(key, Comparison()).merge(comparison)

    def _pool(self) -> ThreadPoolExecutor:
        """Return a pool whose threads run separate cases. Torch's own, which share products, slow small layers."""
        workers = 1 if self.device.type == "cuda" else min(MOST_WORKERS, os.cpu_count() or 1)
        return ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def _read_batch(self, number: int) -> dict[Key, Comparison]:
        batch, compared = self.batches[number], {}
        references = {DENSE: hidden_densely(self.model, batch)}
        for case in self._cases_at(number):
            self._step(case.label)
            reader = Reader(self.model, self.layout(case.kv_format), case.scales, case.injection)
            hidden = reader.hidden(batch, decoded_tokens=self.plan.decoded_tokens)
            name = case.kv_format.name
            compared[name, case.is_calibrated, case.axis] = self._compared(
                references[reference_of(name)], hidden, number
            )
            if case.axis == PLAIN and name in FLOOR:
                references[name] = hidden
        return compared

    def _cases_at(self, batch: int) -> list[Case]:
        """Return the cases for a batch: all for the first documents, then plain ones, which decide the verdicts."""
        return self.cases if batch * BATCH < WINDOWS else self.plain_cases

    def _step(self, label: str) -> None:
        readings = sum(len(self._cases_at(number)) for number in range(len(self.batches)))
        with self.lock:
            self.on_step(label, self.done, readings + len(self.plain_cases))
            self.done += 1

    def _compared(self, reference: Tensor, hidden: Tensor, batch: int) -> Comparison:
        comparison = Comparison()
        owners = self.texts.owners[batch * BATCH :]
        for owner, document_reference, document_hidden, tokens in zip(
            owners, reference, hidden, self.batches[batch], strict=False
        ):
            first_decoded = len(tokens) - self.plan.decoded_tokens
            for at in range(0, len(tokens) - 1, AT_ONCE):
                part = slice(at, min(at + AT_ONCE, len(tokens) - 1))  # no token follows the last
                following = tokens[part.start + 1 : part.stop + 1]
                decoded = max(0, part.stop - max(part.start, first_decoded))
                comparison.add(
                    owner,
                    self._predicted(document_reference[part]),
                    self._predicted(document_hidden[part]),
                    following,
                    decoded=decoded,
                )
        return comparison

    def _predicted(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities of the next token, [tokens, vocab]."""
        return self.model.logits(hidden).log_softmax(-1)

    def measurements(self) -> list[Measurement]:
        with self._pool() as pool:
            needle_shares = list(pool.map(self._needle, self.plain_cases))
        needles = {case.label: needle for case, needle in zip(self.plain_cases, needle_shares, strict=True)}
        best = needles[next(case.label for case in self.plain_cases if case.kv_format.name == BASELINE)]
        return [self._measurement(case, needles[case.label], best) for case in self.plain_cases]

    def _needle(self, case: Case) -> dict[str, float]:
        self._step(f"needle, {case.kv_format.name}")
        keys, centred = self.plan.needle_keys, case.is_calibrated
        return {
            f"{cosine:g}": found_share(case.kv_format, cosine, keys=keys, is_centred=centred, device=self.device)
            for cosine in COSINES
        }

    def _measurement(self, case: Case, needle: dict[str, float], best: dict[str, float]) -> Measurement:
        name = case.kv_format.name
        axes = {
            axis: figures_of(self.comparisons[name, case.is_calibrated, axis], self.texts.bytes_per_token)
            for axis in (PLAIN, OUTLIERS, LOUD)
            if (name, case.is_calibrated, axis) in self.comparisons
        }
        reader = Reader(self.model, self.layout(case.kv_format), case.scales)
        wrong_cuts = hit_equals_miss(reader, self.texts.judged[0, :HIT_TOKENS].to(self.device))
        findings = findings_of(name, axes[PLAIN], needle, best, wrong_cuts)
        return Measurement(
            kv_format=name,
            scale_set=case.scales.digest,
            reference=reference_of(name),
            token_bytes=self.layout(case.kv_format).token_bytes,
            axes=axes,
            needle=needle,
            hit_equals_miss=not wrong_cuts,
            verdict=overall(findings),
            findings=tuple(finding.text for finding in findings),
            shortcomings=tuple(finding.text for finding in findings if finding.verdict != "passed"),
        )


def measure(
    folder: Path, text: Path, plan: Plan, *, device: str = "cpu", on_step: OnStep = lambda *_: None
) -> Artefact:
    """Run the whole suite on the model in a folder. Raises EngineError, ToolError, OSError."""
    with one_thread():
        return _measured(folder, text, plan, device, on_step)


def _measured(folder: Path, text: Path, plan: Plan, device: str, on_step: OnStep) -> Artefact:
    began = time.perf_counter()
    _plan_checked(plan, read_config(folder))
    revision = model_revision(folder)
    model = load_model(folder, device=device, most_positions=max(plan.tokens, HIT_TOKENS))
    texts = read_texts(folder, text, length=plan.tokens, documents=plan.documents, kept_back=plan.kept_back)
    injections, calibrations = _prepared(model, folder, revision, texts)
    suite = Suite(model, revision, plan, texts, calibrations, injections, on_step)
    suite.read()
    measurements = suite.measurements()
    return Artefact(
        model_revision=revision,
        backend=backend_of(suite.device),
        device=device_name(suite.device),
        versions=versions(),
        text_sha256=texts.sha256,
        documents=len(set(texts.owners)),
        window_tokens=plan.tokens,
        calibration_tokens=calibrations[PLAIN].tokens,
        bytes_per_token=texts.bytes_per_token,
        is_quick=plan.is_quick or plan.tokens < Plan().tokens or len(set(texts.owners)) < LEAST_DOCUMENTS,
        is_control_rejected=is_control_rejected(measurements),
        seconds=time.perf_counter() - began,
        measurements=tuple(measurements),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch compute on the calling thread only."""
    previous_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(previous_threads)


def _plan_checked(plan: Plan, config: ModelConfig) -> None:
    """Check that windows fit the model and have tokens before the decoded ones. Raises ToolError."""
    least, most = max(plan.decoded_tokens + 1, 2), config.max_positions
    if not least <= plan.tokens <= most:
        raise ToolError("tokens", f"{plan.tokens} is not between {least} and the model's {most} positions")
    if most < HIT_TOKENS:
        raise ToolError("max_position_embeddings", f"{most} is below {HIT_TOKENS}, which hits are tried out with")


def _prepared(
    model: Model, folder: Path, revision: str, texts: Texts
) -> tuple[dict[str, Injection], dict[str, Calibration]]:
    """Return the injection and the calibration of each axis.

    On the plain axis, the calibration next to the model is used, if there is one, because it would be served.
    """

    def calibrated(injection: Injection) -> Calibration:
        digest = texts.calibration_sha256
        return calibrate(model, texts.calibration, model_revision=revision, text_sha256=digest, injection=injection)

    plain = calibrated(NOTHING)
    largest = (plain.key_mean.abs().amax(-1) + plain.key_amax).max().item()
    injections = {
        PLAIN: NOTHING,
        OUTLIERS: outliers(model.config, device=model.embedding.device),
        LOUD: loud(largest, LOUDNESS),
    }
    stored_calibration = load_calibration(folder, model.config, model_revision=revision)
    calibrations = {axis: calibrated(injections[axis]) for axis in (OUTLIERS, LOUD)}
    return injections, {PLAIN: stored_calibration or plain, **calibrations}


def reference_of(kv_format: str) -> str:
    """Return the name of a format's reference."""
    return {EXACT: DENSE, BASELINE: EXACT}.get(kv_format, BASELINE)


def figures_of(comparison: Comparison, bytes_per_token: float) -> Figures:
    delta, divergence = comparison.delta_percent(), comparison.mean_divergence()

    def by_byte(percent: float) -> float:
        return 100 * math.expm1(math.log1p(percent / 100) / bytes_per_token)

    return Figures(
        perplexity=comparison.perplexity,
        delta_percent=delta.value,
        delta_percent_low=delta.low,
        delta_percent_high=delta.high,
        divergence=divergence.value,
        divergence_low=divergence.low,
        divergence_high=divergence.high,
        byte_delta_percent=by_byte(delta.value),
        byte_delta_percent_low=by_byte(delta.low),
        byte_delta_percent_high=by_byte(delta.high),
        byte_divergence=divergence.value / bytes_per_token,
        byte_divergence_low=divergence.low / bytes_per_token,
        byte_divergence_high=divergence.high / bytes_per_token,
        divergence_p99=comparison.p99_divergence,
        divergence_decoded=comparison.decoded_divergence,
        agreement=comparison.agreement,
        documents=len(comparison.documents),
        tokens=comparison.tokens,
    )


def findings_of(
    kv_format: str, plain: Figures, needle: dict[str, float], best: dict[str, float], wrong_cuts: Sequence[int]
) -> list[Finding]:
    """Return every judged figure with its bound."""
    gate, cosine = gate_of(kv_format), f"{COSINES[0]:g}"
    low, high = plain.byte_delta_percent_low, plain.byte_delta_percent_high
    least, most = plain.byte_divergence_low, plain.byte_divergence_high
    at = ", ".join(map(str, wrong_cuts))
    return [
        judged("ΔPPL by byte", plain.byte_delta_percent, low, high, gate.delta_percent, " %"),
        judged("KL by byte", plain.byte_divergence, least, most, gate.mean_divergence),
        judged_share(f"needle at {cosine}, of bf16's", needle[cosine] / best[cosine], gate.needle_share),
        judged_fact("hit = miss", not wrong_cuts, f"hit differs from miss at {at}" if at else "hit equals miss"),
    ]


def is_control_rejected(measurements: Sequence[Measurement]) -> bool:
    """Return whether two bits missed every quality bound; otherwise the suite cannot detect anything."""
    return all(is_rejected for _, is_rejected in control_checks(measurements))


def control_checks(measurements: Sequence[Measurement]) -> list[tuple[str, bool]]:
    """Return each quality gate, and whether the control clearly failed it."""
    control = next(measurement for measurement in measurements if measurement.kv_format == CONTROL)
    baseline = next(measurement for measurement in measurements if measurement.kv_format == BASELINE)
    findings = findings_of(CONTROL, control.axes[PLAIN], control.needle, baseline.needle, ())[:3]
    return [(finding.what, finding.verdict == "failed") for finding in findings]
