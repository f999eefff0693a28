"""A bundle: all that turns a request's body into tokens as one model does, encoded as bytes and named by their hash.

An engine has its model's folder, and sends its bundle to gateways, which have none: it calls `bundle_encode`, they call
`bundle_read`. The name is the sha256 of the bytes, so that a gateway stores one bundle for all engines of a model.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import tokenizers

from engine_agent.prompts.encoding import encode_text, splitting_tokens, tokenizer_read
from engine_agent.prompts.errors import BadBundle, BadModel, RequestError
from engine_agent.prompts.files import SPECIAL_NAMES, TOKENIZER, read_object, read_text, special_tokens, template_source
from engine_agent.prompts.inspecting import template_contents
from engine_agent.prompts.templates import CONTENTS, Contents, TemplateSource

FORMAT = "luminet/prompt-bundle/1"
MOST_BUNDLE_BYTES = 64 << 20
_FIELDS = frozenset(("format", "tokenizer", "template", "special_tokens", "contents", "vocab_size"))


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle. Expensive parts are built at their first use, in the thread that uses them."""

    tokenizer_json: str
    template_source: str | None  # None: the model takes no chats
    special_tokens: Mapping[str, str]  # `bos_token` and the like, as templates know them
    contents: Contents  # how the template takes a message's content
    vocab_size: int  # the model's: its token ids are below it

    @classmethod
    def from_folder(cls, folder: Path, *, vocab_size: int | None = None) -> "Bundle":
        """Read a model's folder. Check the template, but not the tokenizer. Raise BadModel or OSError."""
        path = folder / TOKENIZER
        if not path.is_file():
            raise BadModel(folder, TOKENIZER, "is missing: no other kind of tokenizer is served")
        template = _template(folder)
        size = _vocab_size(folder) if vocab_size is None else vocab_size
        return cls(read_text(path), template.text, template.special_tokens, template.contents, size)

    @property
    def template(self) -> TemplateSource:
        return TemplateSource(self.template_source, self.special_tokens, self.contents)

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        return tokenizer_read(self.tokenizer_json, "the bundle")

    @cached_property
    def special(self) -> frozenset[str]:
        """Return the texts before which a text can be cut, so that its two parts have the tokens of the whole."""
        return splitting_tokens(self.tokenizer)

    def encode(self, text: str, *, add_special: bool = True, field: str = "prompt") -> list[int]:
        """Tokenise as the engine does. Raise BadRequest if that fails."""
        return encode_text(self.tokenizer, text, add_special=add_special, vocab_size=self.vocab_size, field=field)


def bundle_encode(bundle: Bundle) -> bytes:
    """Encode a bundle. Equal bundles have equal bytes."""
    fields = {
        "format": FORMAT,
        "tokenizer": bundle.tokenizer_json,
        "template": bundle.template_source,
        "special_tokens": dict(bundle.special_tokens),
        "contents": bundle.contents,
        "vocab_size": bundle.vocab_size,
    }
    return json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()


def bundle_name(data: bytes) -> str:
    return sha256(data).hexdigest()


def bundle_read(data: bytes) -> Bundle:
    """Decode a bundle. Raise BadBundle if it is invalid. A bad tokenizer raises BadModel later, when it is built."""
    if len(data) > MOST_BUNDLE_BYTES:
        raise BadBundle(f"{len(data):,} bytes, and {MOST_BUNDLE_BYTES:,} may be")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBundle("it is no JSON") from None
    if not isinstance(fields, dict) or fields.keys() != _FIELDS or fields["format"] != FORMAT:
        raise BadBundle(f"it is no object of the format {FORMAT}")
    if invalid_names := [name for name, is_good in _CHECKS.items() if not is_good(fields[name])]:
        raise BadBundle(f"{invalid_names[0]} has a value it cannot have")
    special = fields["special_tokens"]
    return Bundle(fields["tokenizer"], fields["template"], special, fields["contents"], fields["vocab_size"])


def _is_special(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= {*SPECIAL_NAMES} and all(map(_is_text, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "tokenizer": _is_text,
    "template": lambda value: value is None or _is_text(value),
    "special_tokens": _is_special,
    "contents": lambda value: value in CONTENTS,
    "vocab_size": lambda value: type(value) is int and 0 < value < 2**31,
}


def _template(folder: Path) -> TemplateSource:
    path, text = template_source(folder)
    if text is None:
        return TemplateSource(None, {})
    special = special_tokens(folder)
    try:
        return TemplateSource(text, special, template_contents(text))
    except RequestError as problem:
        raise BadModel(path, "chat_template", problem.problem) from problem


def _vocab_size(folder: Path) -> int:
    path = folder / "config.json"
    size = read_object(path).get("vocab_size")
    if type(size) is not int or size < 1:
        raise BadModel(path, "vocab_size", f"{size!r} is no whole number above 0")
    return size
