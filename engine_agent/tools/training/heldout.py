"""The held-out text in the repository, and a model's loss on it.

A user's Python may differ, so the text behind the figures in the documentation is stored here.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from engine_agent.tools.training import folder
from engine_agent.tools.training.chats import END_OF_TEXT
from engine_agent.tools.training.corpus import Document
from engine_agent.tools.training.network import Llama

PATH = folder.PATH / "heldout.jsonl"
SHORTEST, LONG, LONGEST = 5_000, 29_000, 6_200  # characters: about 1,500, 9,000 and 1,900 tokens
LONG_ONES = {"topic": 1, "page": 1, "source": 2}  # may have LONG characters, so that position 8,192 has a perplexity
MOST_BYTES = 236_000  # of text; the file is a little larger
RANGES = ((0, 512), (512, 1024), (1024, 2048), (2048, 4096), (4096, 8192))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One document that no model of ours was trained on."""

    name: str
    kind: str
    text: str


def choose(documents: Sequence[Document]) -> list[HeldOut]:
    """Return documents long enough for a measurement: the longest of each kind in length, then others as they fit."""
    usable = [document for document in documents if len(document.text) >= SHORTEST]
    long_names = {document.name for kind, most in LONG_ONES.items() for document in longest_of(usable, kind)[:most]}
    chosen, remaining_bytes = [], MOST_BYTES
    # Prose before code, because there is less of it.
    for document in sorted(usable, key=lambda document: (document.name not in long_names, document.kind == "source")):
        text = cut(document.text, LONG if document.name in long_names else LONGEST)
        if len(text) >= SHORTEST and len(text.encode()) <= remaining_bytes:
            remaining_bytes -= len(text.encode())
            chosen.append(HeldOut(document.name, document.kind, text))
    return sorted(chosen, key=lambda document: document.name)


def longest_of(documents: Iterable[Document], kind: str) -> list[Document]:
    of_kind = (document for document in documents if document.kind == kind)
    return sorted(of_kind, key=lambda document: len(document.text), reverse=True)


def cut(text: str, longest: int) -> str:
    """Return the text, cut at the end of a paragraph."""
    return text if len(text) <= longest else text[: text.rindex("\n\n", 0, longest)] + "\n"


def save(documents: Iterable[HeldOut], path: Path) -> None:
    rows = ({"name": document.name, "kind": document.kind, "text": document.text} for document in documents)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def load(path: Path = PATH) -> list[HeldOut]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [HeldOut(**json.loads(line)) for line in lines if line]


@torch.inference_mode()
def losses(model: Llama, tokenizer: Tokenizer, text: str) -> Tensor:
    """Return nats for each token of a text from its beginning, up to the model's positions."""
    tokens = [tokenizer.token_to_id(END_OF_TEXT), *tokenizer.encode(text).ids][: model.shape.positions + 1]
    row = torch.tensor(tokens)
    return functional.cross_entropy(model(row[None, :-1])[0].float(), row[1:], reduction="none")


def bits_per_byte(model: Llama, tokenizer: Tokenizer, documents: Iterable[HeldOut]) -> float:
    """Return bits per byte over whole documents, comparable between tokenizers."""
    nats, size = 0.0, 0
    for document in documents:
        tokens = tokenizer.encode(document.text).ids[: model.shape.positions]
        nats += losses(model, tokenizer, document.text).sum().item()
        size += len(tokenizer.decode(tokens, skip_special_tokens=False).encode())
    return nats / math.log(2) / size


def perplexity_by_position(model: Llama, tokenizer: Tokenizer, documents: Iterable[HeldOut]) -> dict[str, float]:
    """Return the perplexity of tokens at these positions, over documents that extend into the last range."""
    long_losses = [
        document_losses
        for document in documents
        if len(document_losses := losses(model, tokenizer, document.text)) > RANGES[-1][0] + 512
    ]
    means = (
        (first, last, torch.cat([document_losses[first:last] for document_losses in long_losses]).mean())
        for first, last in RANGES
    )
    return {f"{first}-{last}": round(mean.exp().item(), 3) for first, last, mean in means}
