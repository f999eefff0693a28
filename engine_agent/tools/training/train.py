"""`python -m engine_agent.tools.training.train`: train the demo model from the Python that runs this.

The same seed, Python, torch and number of threads give the same corpus, the same tokens in the same order and, as far
as torch guarantees it, the same weights. The number of tokens is fixed, not the time.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from torch.utils import deterministic

from engine_agent.tools.training import folder, heldout, optimiser
from engine_agent.tools.training.card import model_card
from engine_agent.tools.training.corpus import Corpus, read_corpus
from engine_agent.tools.training.figures import corpus_figures, held_out_figures, machine_figures
from engine_agent.tools.training.network import Llama, Shape
from engine_agent.tools.training.stream import Mix, one_pass, token_stream, windows
from engine_agent.tools.training.tokenizer import train_tokenizer

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h


@dataclass(frozen=True, slots=True)
class Phase:
    """A number of tokens in windows of one length, with a number of windows per step."""

    length: int
    rows: int
    tokens: int

    @property
    def steps(self) -> int:
        return self.tokens // (self.length * self.rows)


@dataclass(frozen=True, slots=True)
class Stage:
    """Phases over one mix with one learning rate curve, one after the other or shuffled."""

    phases: tuple[Phase, ...]
    muon_rate: float
    adam_rate: float
    mix: Mix = field(default_factory=Mix)
    shuffled: bool = False

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    @property
    def tokens(self) -> int:
        return sum(phase.steps * phase.rows * phase.length for phase in self.phases)


# Most is learned in short windows, which are fast. The long ones at the end of this stage come at so low a rate that
# the model does not learn distant positions: after the 2,048th token it fails.
FIRST = Stage(
    phases=(Phase(256, 16, 4_000_000), Phase(512, 8, 3_000_000), Phase(2048, 4, 500_000), Phase(8192, 1, 300_000)),
    muon_rate=0.005,
    adam_rate=0.006,
)
# So long windows come again between short ones, at an effective rate, and with more chats.
SECOND = Stage(
    phases=(Phase(512, 8, 800_000), Phase(2048, 4, 500_000), Phase(8192, 1, 600_000)),
    muon_rate=0.003,
    adam_rate=0.003,
    mix=Mix(topic=2.0, page=1.0, source=0.3, small_talk=500),
    shuffled=True,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """All inputs of the training except the corpus."""

    stages: tuple[Stage, ...] = (FIRST, SECOND)
    shape: Shape = field(default_factory=Shape)
    seed: int = 1
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run."""

    step: int
    steps: int
    length: int
    loss: float
    done: float
    seconds: float
    tokens: int

    def __str__(self) -> str:
        remaining_seconds = self.seconds * (1 / self.done - 1)
        return (
            f"step {self.step}/{self.steps}  window {self.length}  loss {self.loss:.3f}  "
            f"{self.tokens / self.seconds:.0f} tokens/s  {self.seconds:.0f} s, about {remaining_seconds:.0f} s left"
        )


def make_tokenizer(corpus: Corpus, plan: Plan) -> Tokenizer:
    """Return a tokenizer trained on one pass over the first stage's mix."""
    return train_tokenizer(one_pass(corpus, Random(plan.seed), plan.stages[0].mix), plan.shape.vocab)


def batches(corpus: Corpus, tokenizer: Tokenizer, stage: Stage, seed: int) -> list[tuple[Phase, Tensor]]:
    """Return the input of each step of a stage."""
    generator, start, phase_batches = torch.Generator().manual_seed(seed), 0, list[tuple[Phase, Tensor]]()
    count = sum(phase.tokens for phase in stage.phases) + 1
    stream = token_stream(corpus, tokenizer, seed=seed, count=count, mix=stage.mix)
    for phase in stage.phases:
        rows = windows(stream[start : start + phase.tokens + 1], phase.length, generator)
        start += phase.tokens
        phase_batches += [(phase, rows[number * phase.rows :][: phase.rows]) for number in range(phase.steps)]
    if stage.shuffled:
        Random(seed).shuffle(phase_batches)
    return phase_batches


def loss_of(model: Llama, rows: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(rows[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def prepare(plan: Plan) -> None:
    """Make this process repeatable and fast: glibc returns large blocks to the system, and new pages cost a quarter."""
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True)
    # Otherwise torch first fills every empty tensor with NaN. The module's stub lacks this setting.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(M_MMAP_THRESHOLD, 2**30)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def train(model: Llama, steps: list[tuple[Phase, Tensor]], stage: Stage, report: Callable[[Progress], None]) -> None:
    """Train the model through a stage; `report` is called at every step."""
    rates = stage.muon_rate, stage.adam_rate
    optimisers = optimiser.make_optimisers(model, muon_rate=stage.muon_rate, adam_rate=stage.adam_rate)
    began, tokens = time.perf_counter(), 0
    for number, (phase, rows) in enumerate(steps, 1):
        loss = loss_of(model, rows.long())
        torch.autograd.backward(loss)
        optimiser.clip(model)
        tokens += phase.rows * phase.length
        done = tokens / stage.tokens
        optimiser.step(optimisers, rates, optimiser.rate_share(done))
        report(Progress(number, stage.steps, phase.length, loss.item(), done, time.perf_counter() - began, tokens))


def train_stage(
    model: Llama, corpus: Corpus, tokenizer: Tokenizer, plan: Plan, number: int, report: Callable[[Progress], None]
) -> dict[str, object]:
    """Train the model through stage `number`, and return its record."""
    wall, cpu, last = time.perf_counter(), time.process_time(), list[float]()
    stage = plan.stages[number]

    def heard(progress: Progress) -> None:
        last[:] = [progress.loss]
        report(progress)

    train(model, batches(corpus, tokenizer, stage, plan.seed + number), stage, heard)
    return {
        "steps": stage.steps,
        "tokens": stage.tokens,
        "last_loss": round(last[0], 4),
        "wall_seconds": round(time.perf_counter() - wall),
        "cpu_seconds": round(time.process_time() - cpu),
    }


def new_model(plan: Plan) -> Llama:
    torch.manual_seed(plan.seed)
    return Llama(plan.shape)


def say(progress: Progress) -> None:
    """Print a line every ten steps."""
    if progress.step % 10 == 0 or progress.step == progress.steps:
        print(progress, flush=True)


def finish(
    out: Path, model: Llama, corpus: Corpus, tokenizer: Tokenizer, plan: Plan, stages: list[dict[str, object]]
) -> None:
    """Write the folder, with its held-out text, its record and its card."""
    folder.write_folder(out, model, tokenizer)
    chosen = heldout.choose(corpus.held_out)
    heldout.save(chosen, out / "heldout.jsonl")
    training = {"plan": asdict(plan), "parameters": folder.parameters(model), "stages": stages}
    record = {
        "corpus": corpus_figures(corpus),
        "machine": machine_figures(),
        "training": training,
        "held_out": held_out_figures(model, tokenizer, chosen),
    }
    folder.write_json(out / "training.json", record)
    (out / "README.md").write_text(model_card(out), encoding="utf-8")


def make(out: Path, plan: Plan) -> None:
    """Train from the Python that runs this, and write the folder."""
    prepare(plan)
    corpus = read_corpus()
    tokenizer = make_tokenizer(corpus, plan)
    model, stages = new_model(plan), list[dict[str, object]]()
    for number in range(len(plan.stages)):
        # A later stage begins with weights as a folder stores them, so that it can also start from a folder.
        model = folder.rounded(model) if number else model
        stages.append(train_stage(model, corpus, tokenizer, plan, number, say))
    finish(out, model, corpus, tokenizer, plan, stages)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engine_agent.tools.training.train", description="Train the demo model."
    )
    parser.add_argument("--out", type=Path, default=folder.PATH, help="where the model folder goes")
    make(parser.parse_args().out, Plan())


if __name__ == "__main__":
    main()
