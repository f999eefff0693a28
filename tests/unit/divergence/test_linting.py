"""The same in text: the place, what stands there, and what it looks like."""

import json
import uuid
from pathlib import Path

import pytest

from engine_agent.divergence.linting import lint
from engine_agent.divergence.looks import look_at, looks
from engine_agent.divergence.prompt_texts import NoPrompt, prompt_of, prompts_of_file
from engine_agent.tools.lint_prompt import main

RULES = "\n".join(
    f"{letter * 3} first, then be kind and answer shortly and with care." for letter in "abcdefghijklmnop"
)


def body(number: int) -> dict[str, object]:
    system = f"You help people.\nNow: 2026-11-2{number}T10:0{number}:00Z\n{RULES}"
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": f"Question {number}?"}]}


def test_a_timestamp_is_found_named_and_pointed_at() -> None:
    found = lint([prompt_of(body(number)) for number in range(4)])
    (one,) = found.findings
    assert one.looks_like == "a timestamp"
    first = one.excerpts[0]
    assert (first.prompt, first.where, first.line, first.column) == (1, "messages[0] (system)", 2, 6)
    assert first.text == "2026-11-20T10:00:00Z"
    assert found.hit_ratio_then > found.hit_ratio_now
    assert "Move what varies to the end" in one.advice


def test_one_prompt_alone_has_suspects() -> None:
    found = lint([prompt_of(body(1))])
    assert [one.looks_like for one in found.suspects] == ["a timestamp"]
    assert found.findings == ()


def test_what_varies_is_named_by_its_form(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        (f"{uuid.UUID(int=2**127)}", "a uuid"),
        ("2026-11-20T10:00:00Z", "a timestamp"),
        ("Nov 20, 2026 at 10:00 AM", "a timestamp"),
        ("2026-11-20", "a date"),
        ("20 November 2026", "a date"),
        ("10:22:33", "a time of day"),
        ("192.168.1.20", "an address of the internet"),
        ("ada@example.com", "an e-mail address"),
        ("1763640000", "unix time"),
        ("req_8f3a2b1c9d0e", "an id"),
        ("4711", "a number"),
    ]
    for text, name in cases:
        with subtests.test(msg=f"{text!r}, {name!r}"):
            shown = f"before {text} after"
            (one,) = looks(shown)
            assert (one.name, shown[one.start : one.stop]) == (name, text)
            inside = look_at(shown, 7 + len(text) // 2, 8 + len(text) // 2)
            assert inside is not None
            assert (inside.name, shown[inside.start : inside.stop]) == (name, text)


def test_a_text_of_words_looks_like_nothing() -> None:
    assert list(looks("Be kind and answer shortly, well-informed and self-consistently.")) == []


@pytest.mark.parametrize(
    ("content", "many"),
    [
        ("Just a prompt.\nOf two lines.", 1),
        (json.dumps(body(1)), 1),
        (json.dumps([body(1), body(2)]), 2),
        (json.dumps(body(1)["messages"]), 1),
        (json.dumps(body(1)) + "\n" + json.dumps(body(2)) + "\n", 2),
        ('{"prompt": "Hello"}', 1),
    ],
    ids=["text", "body", "bodies", "messages", "lines", "prompt"],
)
def test_prompts_are_read_from_what_people_have(content: str, many: int) -> None:
    assert len(prompts_of_file(content)) == many


@pytest.mark.parametrize("content", ['{"model": "m"}', '{"messages": []}', '{"messages": [1]}', "[1]", "[[]]"])
def test_what_is_no_prompt_is_refused(content: str) -> None:
    with pytest.raises(NoPrompt):
        prompts_of_file(content)


def test_the_command_says_where_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(body(number)))
    assert main([str(file) for file in files]) == 2
    told = capsys.readouterr().out
    assert "looks like a timestamp" in told
    assert "messages[0] (system), line 2, column 6" in told
    assert main([*map(str, files), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["looks_like"] == "a timestamp"


def test_prompts_in_good_order_end_with_0_and_no_prompt_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.json"
    good.write_text("\n".join(json.dumps({"prompt": f"{RULES}\n{'why' * n} so"}) for n in range(1, 4)))
    bad.write_text('{"model": "m"}')
    assert main([str(good)]) == 0
    assert "Nothing varies" in capsys.readouterr().out
    assert main([str(bad)]) == 1
    assert "bad.json" in capsys.readouterr().err
