import json

import pytest

from controlplane.api.errors import BadHeader, BadJson, shown
from controlplane.api.problem_json import MOST_ERRORS, problem_response, refusal
from controlplane.common.request_id import request_id_bound


def test_a_problem_names_what_is_wrong_and_the_request() -> None:
    with request_id_bound("r-1"):
        answer = refusal(400, BadHeader("If-Match", "is malformed"), type="bad-request", title="Malformed")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert json.loads(answer.content) == {
        "type": "/api/v1/docs#problem-bad-request",
        "title": "Malformed",
        "status": 400,
        "detail": "If-Match is malformed",
        "errors": [{"field": "If-Match", "message": "is malformed"}],
        "request_id": "r-1",
    }


def test_a_problem_carries_the_headers_it_is_given() -> None:
    answer = problem_response(429, type="t", title="T", detail="d", headers={"Retry-After": "3"})
    assert (answer["Retry-After"], answer["Cache-Control"]) == ("3", "no-store")


def test_a_problem_stays_small_whatever_was_sent() -> None:
    errors = [("x" * 5000, "y" * 5000)] * 5000
    answer = problem_response(422, type="t", title="T", detail="z" * 5000, errors=errors)
    listed = json.loads(answer.content)["errors"]
    assert len(listed) == MOST_ERRORS
    assert len(listed[0]["field"]) == 100
    assert len(answer.content) < 100_000


@pytest.mark.parametrize("sent", ["\ud800", "\0", "a\nb", "\x1b[2J", "\u202e", "é" * 5000])
def test_what_was_sent_is_shown_harmlessly(sent: str) -> None:
    assert shown(sent).isprintable()
    assert len(shown(sent)) <= 100
    json.loads(refusal(400, BadJson(sent, "x"), type="t", title="T").content)
