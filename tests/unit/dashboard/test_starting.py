"""What the pages of getting hits say, of numbers that came from elsewhere."""

import ast
import json
import threading
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.conf import settings
from django.test import override_settings

from controlplane.dashboard.experiments.asking import Answer, NotAnswered, _answer, _event, _first_model, _refusal
from controlplane.dashboard.experiments.rules import NOTHING, Own, rules
from controlplane.dashboard.experiments.sent import pair_headline, sent_rows, speed_words
from controlplane.dashboard.experiments.snippets import snippets
from controlplane.dashboard.experiments.texts import fresh_text, words_for
from controlplane.dashboard.home.customer import Fact
from controlplane.demo.experiments.engines import Counted, _metrics, counted_in
from controlplane.demo.experiments.kinds.flood import flood_trace
from controlplane.demo.experiments.trials import SILENT_SECONDS, About, Step, Told, headline, told_read, trial

ABOUT = About("hit", "Hit", "Twice.", "Undone.", "about 5 s")
COLD = Answer(
    headers=(("x-luminet-miss-reason", "cold"), ("x-luminet-agent", "agent-1"), ("x-luminet-namespace", "evals")),
    hit="0.0",
    prompt_tokens=1_600,
    cached_tokens=0,
    usage_prompt_tokens=1_600,
    usage_cached_tokens=0,
    first_token_ms=400.0,
    whole_ms=500.0,
)
WARM = replace(COLD, hit="99.0", cached_tokens=1_584, first_token_ms=40.0)


def told(*steps: Step, is_over: bool = False, problem: str = "") -> Told:
    found = Told("run", "hit", began=100.0, at=100.0)
    for number, one in enumerate(steps, 1):
        found.add(one, now=100.0 + number)
    if is_over:
        found.end(problem, now=100.0 + len(steps))
    return found


# Snippets


def test_the_python_snippet_is_python_and_speaks_to_the_gateway() -> None:
    python, javascript, curl = snippets(gateway="https://gw.example", prefix="lmk_ab", model="m", namespace="chat")
    tree = ast.parse(python.code)
    assert "https://gw.example/v1" in {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    for one in (python, javascript, curl):
        assert "lmk_ab…" in one.code
        assert "chat" in one.code
        assert "LUMINET_API_KEY" in one.code


def test_the_body_of_the_curl_snippet_is_json() -> None:
    *_, curl = snippets(gateway="", prefix="", model="m", namespace="default")
    body = json.loads(curl.code.split("-d '")[1].removesuffix("'"))
    assert [one["role"] for one in body["messages"]] == ["system", "user"]
    assert "x-luminet-namespace" not in curl.code
    assert "https://your-gateway/v1" in curl.code


# Rules


def own(prompt_tokens: int = 1_000, **missed: int) -> Own:
    return Own(prompt_tokens, missed, Fact("10 min sliding", "from the organisation", "after last use"), "chat", "Fine")


def test_rules_carry_the_readers_own_numbers() -> None:
    first, same, again = rules(own(cold=294, expired=1))
    assert first.own == "Fine."
    assert same.own.startswith("29.4 % of prompt tokens")
    assert "294 of 1,000" in same.own
    assert again.own.startswith("0.1 %")
    assert "In chat a block lives 10 min sliding after last use: from the organisation." in again.why


def test_nothing_is_claimed_of_what_was_not_counted() -> None:
    _, same, again = rules(own(0))
    assert same.own == again.own == NOTHING


# Requests that were sent


def test_bars_are_of_the_slowest_first_token() -> None:
    rows = sent_rows([("First", COLD), ("Second", WARM)])
    assert rows == (("First", COLD, 1000), ("Second", WARM, 100))


def test_the_headline_says_what_came_back_whichever_it_is() -> None:
    assert pair_headline(COLD, WARM) == "The same prompt twice: 0.0 %, then 99.0 % came from the cache"
    assert "“cold”" in pair_headline(COLD, COLD)
    off = replace(COLD, headers=(("x-luminet-miss-reason", "disabled"), ("x-luminet-namespace", "evals")))
    assert pair_headline(off, off) == "Both were computed: caching is off in evals"
    assert "measured here once" in speed_words(COLD, WARM)


HEADERS = (("x-luminet-cache-hit", "1.0"), ("x-luminet-prompt-tokens", "100"), ("x-luminet-cached-tokens", "1"))
USAGE = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 1}}


def test_headers_and_usage_are_kept_apart() -> None:
    found = _answer(HEADERS, {**USAGE, "prompt_tokens": 99}, 1.0, 2.0)
    assert (found.prompt_tokens, found.usage_prompt_tokens) == (100, 99)


@pytest.mark.parametrize(
    ("headers", "usage"),
    [
        ((), USAGE),
        (HEADERS, {}),
        (HEADERS, {"prompt_tokens": "many"}),
        (HEADERS[:2], USAGE),
        (HEADERS, {**USAGE, "prompt_tokens_details": 7}),
    ],
)
def test_an_answer_without_our_numbers_is_none(headers: tuple[tuple[str, str], ...], usage: dict[str, object]) -> None:
    with pytest.raises(NotAnswered):
        _answer(headers, usage, 1.0, 2.0)


@pytest.mark.parametrize("line", [b"data: {nonsense\n", b'data: {"error": {"message": "away"}}\n'])
def test_what_is_no_event_ends_it(line: bytes) -> None:
    with pytest.raises(NotAnswered):
        _event(line)


def test_other_lines_are_passed_over() -> None:
    assert _event(b": ping\n") == _event(b"\n") == _event(b"data: [DONE]\n") == _event(b"data: 7\n") == {}


def test_refusals_carry_the_gateways_reason_but_never_too_much_of_it() -> None:
    assert _refusal(429, b'{"error": {"message": "slow down"}}') == "The gateway answers 429: slow down"
    assert _refusal(502, b"<html>") == "The gateway answers 502: and does not say why."
    assert len(_refusal(400, json.dumps({"error": {"message": "x" * 9_999}}).encode())) < 400
    with pytest.raises(NotAnswered, match="No engine serves"):
        _first_model(200, b'{"data": []}')


def test_texts_are_new_each_time_and_as_long_as_asked_for() -> None:
    first, second = fresh_text(50), fresh_text(50)
    assert first.split()[:2] != second.split()[:2]
    assert len(first.split()) == 52
    assert words_for(6_000) > 3 * words_for(1_500)


# Engines


def test_engines_counters_are_added_up_for_one_namespace_alone() -> None:
    text = "\n".join(
        f'luminet_{name}_tokens_total{{kv_dtype="{kind}",namespace="{namespace}",organisation="{org}"}} {value}'
        for name, kind, namespace, org, value in [
            ("prompt", "fp8", "default", "acme", "100.0"),
            ("prompt", "int4", "default", "acme", "1e3"),
            ("cached", "fp8", "default", "acme", "60.0"),
            ("prompt", "fp8", "default", "globex", "7.0"),
            ("prompt", "fp8", "chat", "acme", "7.0"),
        ]
    )
    found = counted_in([text, text], organisation="acme", namespace="default")
    assert found == Counted(0, 2_200, 120)
    assert found - Counted(0, 200, 20) == Counted(0, 2_000, 100)


class Engine(BaseHTTPRequestHandler):
    """Tells its metrics to the bearer of the token."""

    def do_GET(self) -> None:
        is_known = self.headers.get("authorization") == "Bearer hush"
        self.send_response(200 if is_known else 401)
        self.end_headers()
        self.wfile.write(b"figures")

    def log_message(self, *told: object) -> None:
        """Nothing."""


def test_engines_are_asked_with_the_token_of_the_fleet() -> None:
    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, metrics_token="hush")):
            assert _metrics(address) == "figures"
        with (
            override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, metrics_token=None)),
            pytest.raises(OSError, match="401"),
        ):
            _metrics(address)
        server.shutdown()


# What experiments tell


def test_what_is_told_survives_json() -> None:
    found = told(
        Step("Sent.", [("First", COLD)], [("Header", "1 of 2", "why")], "Title", verdict="Shown"), is_over=True
    )
    assert trial(ABOUT, told_read(json.loads(json.dumps(found.stored()))), now=102.0) == trial(ABOUT, found, now=102.0)
    assert asdict(COLD) == found.answers[0][1]


def test_an_experiment_claims_nothing_before_it_ran() -> None:
    found = trial(ABOUT, None, now=0.0)
    assert (found.title, found.state, found.is_running, found.rows) == ("Hit", "not run yet", False, ())


def test_a_verdict_becomes_the_title_and_its_state_a_word() -> None:
    shown = trial(ABOUT, told(Step("Done.", verdict="Hit: 99 %"), is_over=True), now=101.0)
    assert (shown.title, shown.state, shown.tone) == ("Hit: 99 %", "shown", "ok")
    weak = trial(ABOUT, told(Step("Done.", verdict="Hit: 0 %", tone="warn"), is_over=True), now=101.0)
    assert (weak.state, weak.tone) == ("not shown", "warn")
    failed = trial(ABOUT, told(Step("Begun."), is_over=True, problem="Away."), now=101.0)
    assert (failed.state, failed.tone, failed.problem) == ("did not come through", "bad", "Away.")


def test_a_silent_experiment_is_called_cut_off() -> None:
    assert trial(ABOUT, told(Step("Begun.")), now=101.0 + SILENT_SECONDS).is_running
    dead = trial(ABOUT, told(Step("Begun.")), now=102.0 + SILENT_SECONDS)
    assert not dead.is_running
    assert dead.problem.startswith("It was cut off")


def test_steps_carry_when_they_were() -> None:
    assert trial(ABOUT, told(Step("One."), Step("Two.")), now=102.0).steps == (("1.00 s", "One."), ("2.00 s", "Two."))


def test_the_headline_counts_what_runs_then_what_was_shown() -> None:
    none = trial(ABOUT, None, now=0.0)
    runs = trial(ABOUT, told(Step("Begun.")), now=101.0)
    shown = trial(ABOUT, told(Step("Done.", verdict="x"), is_over=True), now=101.0)
    assert headline([none, none]) == "2 experiments show it on this very fleet"
    assert headline([none, runs, shown]) == "1 of 3 experiments runs on this fleet now"
    assert headline([none, shown]) == "1 of 2 experiments have shown it on this very fleet"


def test_the_floods_trace_repeats_the_quiet_tenants_beginnings_alone() -> None:
    lines = [json.loads(line) for line in flood_trace().splitlines()]
    mine = [one["hash_ids"] for one in lines if one["hash_ids"][0] == lines[0]["hash_ids"][0]]
    assert len(mine) == 20
    assert all(one[:60] == mine[0][:60] for one in mine)
    ends = [block for one in lines for block in one["hash_ids"][60:]]
    assert len(ends) == len(set(ends))
