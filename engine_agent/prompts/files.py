"""The files of a model's folder that define how text becomes tokens, and the functions that read them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_agent.prompts.errors import BadModel

TEMPLATE = "chat_template.jinja"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_object(path: Path) -> dict[str, Any]:
    """Raise BadModel or OSError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise BadModel(path, "", f"is no JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise BadModel(path, "", "is no JSON object")
    return document


def maybe_object(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    """Raise BadModel or OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise BadModel(path, "", f"is no UTF-8: {problem}") from problem


def special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens by the names that templates use, like `bos_token`. Raise BadModel or OSError."""
    config = {**maybe_object(folder / SPECIAL_TOKENS), **maybe_object(folder / TOKENIZER_CONFIG)}
    texts = {name: _content(config.get(name)) for name in SPECIAL_NAMES}
    return {name: text for name, text in texts.items() if text is not None}


def template_source(folder: Path) -> tuple[Path, str | None]:
    """Return the template and its file: `chat_template.jinja`, or the tokenizer configuration's template, of several
    the one named `default`. Raise BadModel or OSError.
    """
    path = folder / TEMPLATE
    if path.is_file():
        return path, read_text(path)
    path = folder / TOKENIZER_CONFIG
    template = maybe_object(path).get("chat_template")
    if isinstance(template, list):
        templates = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = templates.get("default")
    if template is not None and not isinstance(template, str):
        raise BadModel(path, "chat_template", "is no text")
    return path, template


def _content(token: object) -> str | None:
    """Return a token's text: a token is either its text, or an object that contains it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
