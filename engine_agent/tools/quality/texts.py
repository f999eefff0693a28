"""Text for a model: windows of one length, and the document of each.

Input is JSON lines with a `text` each, or one plain file. A document gives as many whole windows as it has; the rest,
and documents shorter than one window, are left out. Some documents are set aside for calibration, so that scales are
never judged on the text they were derived from.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine_agent.engine.config import CONFIG
from engine_agent.tools.errors import ToolError

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Texts:
    """Windows to judge by, [windows, tokens], their documents, and windows of other documents for calibration."""

    judged: Tensor
    owners: tuple[int, ...]  # for each judged window, its document
    calibration: Tensor
    sha256: str
    calibration_sha256: str
    bytes_per_token: float  # over the judged tokens


class Tokens:
    """A model's own tokenizer, with the token that begins every document, if the model has one."""

    def __init__(self, folder: Path) -> None:
        path = folder / TOKENIZER
        if not path.exists():
            raise ToolError(folder, f"has no {TOKENIZER}")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as problem:  # the library raises nothing more specific
            raise ToolError(path, f"is no tokenizer: {problem}") from problem
        first = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("bos_token_id")
        self._first = first if type(first) is int else None

    def of(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids if self._first is None or ids[:1] == [self._first] else [self._first, *ids]

    def text_of(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids)
        return text


def read_documents(path: Path) -> list[str]:
    """Return the documents in a file. Raises ToolError, OSError."""
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ToolError(path, f"is no UTF-8: {problem}") from problem
    if path.suffix != ".jsonl":
        return [content]
    documents = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError) as problem:
            raise ToolError(path, f"line {number}: expected an object with a text") from problem
        if type(text) is not str:
            raise ToolError(path, f"line {number}: text: {type(text).__name__} is no text")
        documents.append(text)
    return documents


def windows(ids: Sequence[int], length: int) -> list[list[int]]:
    """Return all consecutive windows of one length in a document."""
    return [list(ids[at : at + length]) for at in range(0, len(ids) - length + 1, length)]


def read_texts(folder: Path, path: Path, *, length: int, documents: int | None, kept_back: int) -> Texts:
    """Read the text: the last `kept_back` documents for calibration, others to judge by. Raises ToolError, OSError."""
    tokens, texts = Tokens(folder), read_documents(path)
    cut_texts = [cut for text in texts if (cut := windows(tokens.of(text), length))]
    if len(texts) == 1:
        # The windows of a single text are resampled like documents.
        cut_texts = [[window] for cut in cut_texts for window in cut]
    if len(cut_texts) < kept_back + 2:
        raise ToolError(path, f"{len(cut_texts)} documents of {length} tokens or more, and {kept_back + 2} are needed")
    judged, calibration_texts = (
        cut_texts[: len(cut_texts) - kept_back][:documents],
        cut_texts[len(cut_texts) - kept_back :],
    )
    owners = tuple(number for number, cut in enumerate(judged) for _ in cut)
    read = [window[1:] for cut in judged for window in cut]  # the first token of a window is not predicted
    size = sum(len(tokens.text_of(window).encode()) for window in read) / sum(map(len, read))
    return Texts(_joined(judged), owners, _joined(calibration_texts), _digest(judged), _digest(calibration_texts), size)


def _joined(documents: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    return torch.tensor([window for cut in documents for window in cut])


def _digest(documents: Sequence[Sequence[Sequence[int]]]) -> str:
    """Return a digest of the tokens, independent of the file."""
    state = sha256(b"luminet/documents/1")
    for document in documents:
        state.update(torch.tensor(document, dtype=torch.int64).numpy().astype("<i8").tobytes())
        state.update(b"|")
    return state.hexdigest()
