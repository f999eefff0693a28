"""Bodies that no model takes: JSON with a value out of place, and bytes that are no JSON."""

import json
import random
from typing import Any

BROKEN = frozenset((400,))
NAMES = ("", "x", "demo ", "Demo", "demo\x00", "../demo", "gpt-4o", "\u202edemo", "d" * 10_000, "😀", "\x1b[31m")
ODD_TEXTS = (
    "",
    "\x00",
    "\x1b[31m",
    "%00",
    "%ff%fe",
    "%2e%2e%2f",
    "ü" * 50,
    "😀",
    "\u202e\ufeff",
    "<|im_start|>system",
    "<|endoftext|>" * 50,
    "{{ cycler.__init__.__globals__ }}",
    "' or 1=1 --",
    "a\nb\r\nx: y",
    "a" * 3_000,
)
ODD_NUMBERS = (0, -1, 1, 3, 1.5, -0.0, 1e300, -1e300, 2**31, 2**63, -(2**63), 10**40, 10**400, 0.1, 1e-320)
FIELDS = (
    *("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "n"),
    *("stream", "stream_options", "stop", "seed", "logit_bias", "logprobs", "top_logprobs", "echo", "best_of", "user"),
    *("kv_cache_dtype", "cache_salt", "prompt_cache_key", "tools", "tool_choice", "response_format", "suffix"),
    *("chat_template_kwargs", "add_generation_prompt", "continue_final_message", "presence_penalty", "min_tokens"),
    *("stop_token_ids", "ignore_eos", "return_token_ids", "metadata", "no_such_field", "__class__", ""),
)
NESTED_DEEPLY = 3_000  # what no parser of ours follows
_BASE: dict[str, Any] = {"model": "demo", "max_tokens": 1, "temperature": 0}
_LITERALS = (b"NaN", b"Infinity", b"1e999", b"-", b"01", b"'x'", b'"\\ud800"', b'"\\x"', b'"\t"', b"nul", b"1" * 5_000)


def odd_body(chance: random.Random, *, chat: bool) -> bytes:
    """A good one with one to three of its values replaced, or some besides."""
    prompt = {"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"}
    told: dict[str, Any] = {**_BASE, **prompt}
    for name in chance.sample(FIELDS, chance.randrange(1, 4)):
        told[name] = odd_value(chance, depth=3)
    if chat and chance.random() < 0.5:
        told["messages"] = [_message(chance) for _ in range(chance.randrange(4))]
    return json.dumps(told, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def odd_value(chance: random.Random, *, depth: int) -> Any:
    kind = chance.randrange(7 if depth else 5)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind in (1, 2):
        return chance.choice(ODD_NUMBERS)
    if kind in (3, 4):
        return chance.choice(ODD_TEXTS)
    some = [odd_value(chance, depth=depth - 1) for _ in range(chance.choice((0, 1, 2, 40)))]
    return some if kind == 5 else {chance.choice((*FIELDS, *ODD_TEXTS)): one for one in some}


def _message(chance: random.Random) -> Any:
    role = chance.choice(("user", "system", "assistant", "tool", "root", "", None, 1))
    content = chance.choice(("Hello", odd_value(chance, depth=2), [{"type": "text", "text": chance.choice(ODD_TEXTS)}]))
    more = {"name": odd_value(chance, depth=1)} if chance.random() < 0.3 else {}
    return {"role": role, "content": content, **more} if chance.random() < 0.9 else odd_value(chance, depth=2)


def broken_body(chance: random.Random) -> bytes:
    good = json.dumps({**_BASE, "prompt": "Hello"}).encode()
    match chance.randrange(9):
        case 0:
            return good[: chance.randrange(len(good))]
        case 1:
            return good + chance.choice((b"{", b"x", b"\x00", good))
        case 2:
            return good.replace(b"Hello", chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80")))
        case 3:
            return good.replace(b'"Hello"', chance.choice(_LITERALS))
        case 4:
            return good.replace(b'"Hello"', _nested(chance))
        case 5:
            return chance.choice((b"", b" ", b"null", b"[]", b'"x"', b"1", b"[" * 100_000, b"\xef\xbb\xbf" + good))
        case 6:
            return good.decode().encode(chance.choice(("utf-16", "utf-32", "utf-7"))) + b"\xff"
        case 7:
            return good[:-1] + b', "model": "demo"}'
        case _:
            return b"\xff" + chance.randbytes(chance.randrange(2_000))


def _nested(chance: random.Random) -> bytes:
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inside = b"1" if opening != b"[" else b""
    return opening * NESTED_DEEPLY + inside + closing * NESTED_DEEPLY
