"""The path from text to weights, at a size that takes no time."""

import subprocess
import sys
from random import Random

import pytest
import torch
from tokenizers import Tokenizer

from engine_agent.tools.training.chats import END, END_OF_TEXT, START
from engine_agent.tools.training.corpus import Corpus, Document
from engine_agent.tools.training.entries import Entry
from engine_agent.tools.training.folder import same_weights
from engine_agent.tools.training.network import Llama, Shape
from engine_agent.tools.training.optimiser import rate_share
from engine_agent.tools.training.stream import Mix, one_pass, token_stream, windows
from engine_agent.tools.training.tokenizer import train_tokenizer
from engine_agent.tools.training.train import Phase, Plan, Progress, Stage, batches, new_model, train_stage

SHAPE = Shape(vocab=300, hidden=64, layers=1, heads=2, kv_heads=1, head_dim=32, intermediate=96)
STAGE = Stage(phases=(Phase(32, 2, 128), Phase(64, 1, 64)), muon_rate=0.005, adam_rate=0.006)
PLAN = Plan(stages=(STAGE,), shape=SHAPE)
ENTRIES = tuple(
    Entry("textwrap", f"f{number}", "(x)", f"Wrap what it is given, {number} times.") for number in range(9)
)
TEXTS = tuple(Document(f"topic:t{number}", "topic", f"Statement {number} does something. " * 9) for number in range(9))
CORPUS = Corpus(training=TEXTS, held_out=(), entries=ENTRIES, digest="")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(one_pass(CORPUS, Random(1), Mix()), SHAPE.vocab)


def trained(tokenizer: Tokenizer, plan: Plan) -> tuple[Llama, list[Progress]]:
    model, progress = new_model(plan), list[Progress]()
    figures = train_stage(model, CORPUS, tokenizer, plan, 0, progress.append)
    assert figures["steps"] == len(progress)
    return model, progress


def test_three_steps_from_one_seed_give_one_model_and_another_seed_another(tokenizer: Tokenizer) -> None:
    (first, progress), (second, _) = trained(tokenizer, PLAN), trained(tokenizer, PLAN)
    other, _ = trained(tokenizer, Plan(stages=(STAGE,), shape=SHAPE, seed=2))
    assert [one.step for one in progress] == [1, 2, 3]
    assert [one.length for one in progress] == [32, 32, 64]
    assert same_weights(first, second)
    assert not same_weights(first, other)


def test_progress_says_where_a_run_is_and_how_long_it_takes() -> None:
    words = str(Progress(step=5, steps=20, length=256, loss=2.5, done=0.25, seconds=10.0, tokens=20_000))
    assert words == "step 5/20  window 256  loss 2.500  2000 tokens/s  10 s, about 30 s left"


def test_training_lowers_the_loss(tokenizer: Tokenizer) -> None:
    stage = Stage(phases=(Phase(32, 8, 32 * 8 * 16),), muon_rate=0.02, adam_rate=0.02)
    _, progress = trained(tokenizer, Plan(stages=(stage,), shape=SHAPE))
    assert progress[-1].loss < 0.75 * progress[0].loss


def test_the_stream_has_every_text_behind_an_end_of_text_token(tokenizer: Tokenizer) -> None:
    stream = token_stream(CORPUS, tokenizer, seed=1, count=9000, mix=Mix())
    again = token_stream(CORPUS, tokenizer, seed=1, count=9000, mix=Mix())
    written = tokenizer.decode(stream.tolist(), skip_special_tokens=False)
    assert torch.equal(stream, again)
    assert written.startswith(END_OF_TEXT)
    assert all(document.text in written for document in TEXTS)


def test_a_shuffled_stage_reads_the_same_in_another_order(tokenizer: Tokenizer) -> None:
    phases = (Phase(32, 2, 640), Phase(64, 1, 640))
    in_order = batches(CORPUS, tokenizer, Stage(phases, 0.005, 0.006), 1)
    mixed = batches(CORPUS, tokenizer, Stage(phases, 0.005, 0.006, shuffled=True), 1)
    assert [phase.length for phase, _ in in_order] == [32] * 10 + [64] * 10
    assert [phase.length for phase, _ in mixed] != [phase.length for phase, _ in in_order]
    assert sorted(rows.sum().item() for _, rows in mixed) == sorted(rows.sum().item() for _, rows in in_order)


def test_windows_cover_the_stream_once_and_overlap_by_the_token_to_predict() -> None:
    rows = windows(torch.arange(101), 10, torch.Generator().manual_seed(0))
    assert sorted(row[0].item() for row in rows) == list(range(0, 100, 10))
    assert all(torch.equal(row, torch.arange(11) + row[0]) for row in rows)


def test_the_rate_goes_up_stays_and_ends_at_nothing() -> None:
    assert rate_share(0.01) == 0.5
    assert rate_share(0.3) == 1.0
    assert rate_share(0.7) == pytest.approx(0.5)
    assert rate_share(1.0) == 0.0


@pytest.mark.parametrize("text", ["  def f(x):\n\treturn é “x”  \n", "日本語 🙂", "", f"{START}user\nHi{END}\n"])
def test_every_text_is_text_again(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_token_sees_no_later_one_and_distance_alone_matters() -> None:
    torch.manual_seed(0)
    model, tokens = Llama(SHAPE).requires_grad_(False), torch.randint(0, 300, (1, 20))
    changed = tokens.clone()
    changed[0, 12:] += 1
    logits = model(tokens)
    assert torch.equal(logits[0, :12], model(changed % 300)[0, :12])
    assert torch.allclose(logits, model(tokens, torch.arange(1000, 1020)), atol=1e-4)


def test_the_command_explains_itself() -> None:
    command = [sys.executable, "-m", "engine_agent.tools.training.train", "--help"]
    assert "--out" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
