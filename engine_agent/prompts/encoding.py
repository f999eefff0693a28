"""Text to tokens with a tokenizer as it is shipped, and where a text can be cut without changing what it comes to."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers

from engine_agent.prompts.errors import BadModel, BadRequest


def tokenizer_read(text: str, path: Path | str) -> tokenizers.Tokenizer:
    """Of a `tokenizer.json`, which neither cuts texts off nor fills them up. Raises BadModel, which names `path`."""
    try:
        raw = tokenizers.Tokenizer.from_str(text)
    except Exception as problem:  # the library has one class for everything that is wrong
        raise BadModel(path, "", f"is no tokenizer: {problem}") from problem
    raw.no_truncation()
    raw.no_padding()
    return raw


def encode_text(
    raw: tokenizers.Tokenizer, text: str, *, add_special: bool, vocab_size: int, field: str = "prompt"
) -> list[int]:
    """`add_special`: what the tokenizer puts around a text. Raises BadRequest, which names `field`."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise BadRequest(field, f"half of a surrogate pair at character {problem.start} is no text") from problem
    # A batch of one: the library holds the interpreter's lock while it encodes a single text, and not for these.
    ids: list[int] = raw.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
    if ids and max(ids) >= vocab_size:
        raise BadRequest(field, f"token {max(ids)} is none of the model's {vocab_size:,}")
    return ids


def splitting_tokens(raw: tokenizers.Tokenizer) -> frozenset[str]:
    """Texts that are one token wherever they stand, and of which what stands before them knows nothing: a text cut in
    front of one comes to the tokens of its two parts. Those of which that cannot be said for sure are not among them.
    """
    added = list(raw.get_added_tokens_decoder().values())
    is_plain = raw.normalizer is None  # else some are looked for in what the normaliser made of the text
    texts = {token.content for token in added}
    parting = {
        token.content
        for token in added
        if token.content
        and (is_plain or not token.normalized)
        and not (token.single_word or token.lstrip or token.rstrip)
        and not (token.content[0].isalnum() or token.content[0].isspace())  # what a neighbour may look at
    }
    return frozenset(parting - set(_entangled(parting, texts)))


def _entangled(parting: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Those that may begin or end within another: where both could be read, the library chooses."""
    beginnings = {text[:end] for text in texts for end in range(1, len(text))}
    ends = {text[start:] for text in texts for start in range(1, len(text))}
    for text in parting:
        begins_within = any(text[:end] in ends for end in range(1, len(text)))
        ends_within = any(text[start:] in beginnings for start in range(1, len(text)))
        if begins_within or ends_within or any(text in other for other in texts if other != text):
            yield text
