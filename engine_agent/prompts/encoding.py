"""Tokenises text with a model's tokenizer, and finds where a text can be cut without changing its tokens."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers

from engine_agent.prompts.errors import BadModel, BadRequest


def tokenizer_read(text: str, path: Path | str) -> tokenizers.Tokenizer:
    """Parse a `tokenizer.json`, without truncation and padding. Raise BadModel, which names `path`."""
    try:
        raw = tokenizers.Tokenizer.from_str(text)
    except Exception as problem:  # the library raises plain Exception
        raise BadModel(path, "", f"is no tokenizer: {problem}") from problem
    raw.no_truncation()
    raw.no_padding()
    return raw


def encode_text(
    raw: tokenizers.Tokenizer, text: str, *, add_special: bool, vocab_size: int, field: str = "prompt"
) -> list[int]:
    """Tokenise a text, with the tokenizer's special tokens if `add_special`. Raise BadRequest, which names `field`."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise BadRequest(field, f"half of a surrogate pair at character {problem.start} is no text") from problem
    # A batch of one: the library holds the interpreter's lock while it encodes a single text, but not for a batch.
    ids: list[int] = raw.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
    if ids and max(ids) >= vocab_size:
        raise BadRequest(field, f"token {max(ids)} is none of the model's {vocab_size:,}")
    return ids


def splitting_tokens(raw: tokenizers.Tokenizer) -> frozenset[str]:
    """Return the texts that are always one token, whatever precedes them: a text cut before one has the tokens of its
    two parts. Leave out those for which this is not certain.
    """
    added = list(raw.get_added_tokens_decoder().values())
    is_plain = raw.normalizer is None  # otherwise some are matched in the normalised text
    texts = {token.content for token in added}
    parting = {
        token.content
        for token in added
        if token.content
        and (is_plain or not token.normalized)
        and not (token.single_word or token.lstrip or token.rstrip)
        and not (token.content[0].isalnum() or token.content[0].isspace())  # may depend on a neighbour
    }
    return frozenset(parting - set(_entangled(parting, texts)))


def _entangled(parting: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts that may overlap another one: where both match, the library chooses."""
    beginnings = {text[:end] for text in texts for end in range(1, len(text))}
    ends = {text[start:] for text in texts for start in range(1, len(text))}
    for text in parting:
        begins_within = any(text[:end] in ends for end in range(1, len(text)))
        ends_within = any(text[start:] in beginnings for start in range(1, len(text)))
        if begins_within or ends_within or any(text in other_text for other_text in texts if other_text != text):
            yield text
