import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_agent.backends.base import ModelCard
from engine_agent.engine.errors import BadRequest
from engine_agent.prompts.templates import TemplateSource
from engine_agent.server.pin_content import PinContent, pin_content, pin_tokens
from engine_agent.server.policy_file import BadPolicy, PolicyFile, read_policy_file
from tests.engines.rendering import InlineTemplate

CARD = ModelCard("demo", "r", 0, context_tokens=64, vocab_size=300, block_tokens=16, kv_dtypes=(), device="", dtype="")
TOML = """
ttl_seconds = 600
kv_dtype = "int8"
pin_share = 0.1

[[pins]]
name = "support"
expires_at = 2027-01-31T23:59:59+01:00
messages = [{role = "system", content = "You are terse."}]

[[pins]]
name = "head"
token_ids = [1, 2, 3]
"""


def read(tmp_path: Path, text: str | bytes, name: str = "policy.json") -> PolicyFile:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_policy_file(path)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    said = {
        "ttl_seconds": 600,
        "kv_dtype": "int8",
        "pin_share": 0.1,
        "pins": [
            {
                "name": "support",
                "expires_at": "2027-01-31T23:59:59+01:00",
                "messages": [{"role": "system", "content": "You are terse."}],
            },
            {"name": "head", "token_ids": [1, 2, 3]},
        ],
    }
    found = read(tmp_path, TOML, "policy.toml")
    assert found == read(tmp_path, json.dumps(said))
    assert found.policy == {"ttl_seconds": 600, "kv_dtype": "int8", "pin_share": 0.1}
    assert [pin.name for pin in found.pins] == ["support", "head"]
    assert found.pins[0].expires_at == datetime(2027, 1, 31, 22, 59, 59, tzinfo=UTC)
    assert found.pins[1].expires_at is None


def test_an_empty_policy_is_one(tmp_path: Path) -> None:
    assert read(tmp_path, "{}") == PolicyFile()
    assert read(tmp_path, "", "policy.toml") == PolicyFile()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The body is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"ttl_seconds": 1, "ttl_seconds": 2}', "given more than once"),
        ('{"ttl_seconds": NaN}', "NaN"),
        ('{"ttl": 5}', "ttl: is none of prefix_caching, ttl_seconds"),
        ('{"models": {}}', "models: is none of"),
        ('{"ttl_seconds": 0}', "ttl_seconds: expected seconds above 0"),
        ('{"ttl_seconds": true}', "ttl_seconds: expected seconds above 0"),
        ('{"ttl_seconds": "5"}', "ttl_seconds: expected seconds above 0"),
        ('{"ttl_mode": "forever"}', "ttl_mode: expected one of sliding, absolute"),
        ('{"limit_share": 2}', "limit_share: expected a share from 0 to 1"),
        ('{"pins": {}}', "pins: must be a list"),
        ('{"pins": [7]}', "pins: must be a list"),
        ('{"pins": [{}]}', r"pins\[0\].name: must be a text"),
        ('{"pins": [{"name": "a"}]}', r"pins\[0\].content: must be one of token_ids, prompt, messages"),
        ('{"pins": [{"name": "a", "prompt": "x", "token_ids": [1]}]}', r"pins\[0\].content: must be one of"),
        ('{"pins": [{"name": "a", "prompt": ""}]}', r"pins\[0\].prompt: must be a text, and not empty"),
        ('{"pins": [{"name": "a", "token_ids": [true]}]}', r"pins\[0\].token_ids: must be a list of"),
        ('{"pins": [{"name": "a", "messages": [{"role": "user"}]}]}', r"pins\[0\].messages: must be a list of"),
        ('{"pins": [{"name": "a", "prompt": "x", "ttl": 1}]}', r"pins\[0\].ttl: is none of"),
        ('{"pins": [{"name": "a", "prompt": "x", "expires_at": "soon"}]}', "is no instant"),
        ('{"pins": [{"name": "a", "prompt": "x", "expires_at": "2027-01-31T23:59:59"}]}', "with its offset"),
        ('{"pins": [{"name": "a", "prompt": "x", "expires_at": 7}]}', "must be an instant"),
    ],
)
def test_what_cannot_be_obeyed_is_named_with_its_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadPolicy, match=rf"policy\.json: .*{said}"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", [b"ttl_seconds = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_what_is_no_toml_says_so(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(BadPolicy, match=r"policy\.toml: is no TOML"):
        read(tmp_path, text, "policy.toml")


class Letters:
    """A tokenizer whose tokens are code points, with 1 in front where special tokens are added."""

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return [1] * add_special + [ord(letter) for letter in text]


TURNS = InlineTemplate(
    TemplateSource(
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        {},
    )
)


def tokens(told: dict[str, object]) -> list[int]:
    return asyncio.run(pin_tokens(pin_content(told), CARD, Letters(), TURNS))


def test_a_pinned_prompt_has_the_tokens_of_a_completion_that_begins_with_it() -> None:
    assert tokens({"prompt": "ab"}) == [1, 97, 98]


def test_pinned_messages_have_the_tokens_of_a_chat_that_begins_with_them() -> None:
    found = tokens({"messages": [{"role": "system", "content": "x"}]})
    assert found == Letters().encode("<system>x", add_special=False)


def test_pinned_tokens_are_themselves() -> None:
    assert tokens({"token_ids": [5, 299]}) == [5, 299]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"token_ids": [300]}, "token_ids: must be one token or more, each below 300"),
        ({"token_ids": [1] * 65}, "token_ids: 65 tokens are more than the context, 64"),
        ({"prompt": "x" * 70}, "prompt: 71 tokens are more than the context, 64"),
    ],
)
def test_what_this_model_cannot_have_is_refused(told: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        tokens(told)


def test_a_pins_content_is_in_no_representation() -> None:
    assert "secret" not in repr(PinContent("prompt", "secret"))
