"""Who uses what the compose file runs: an operator, as browsers do and by REST, and a customer with OpenAI's client."""

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import httpx
import openai

from tests.compose.twin import CHECK_SECONDS, READY_SECONDS, Twin

QUESTION = (
    "What does the module json do, when would I use it, and what does it do with numbers that are too large for it?"
)


T = TypeVar("T")


def eventually(look: Callable[[], T], is_right: Callable[[T], object]) -> T:
    """What was seen last: as soon as it is right, or when the time is over."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_right(seen := look()) and time.monotonic() < deadline:
        time.sleep(CHECK_SECONDS)
    return seen


@dataclass(frozen=True, slots=True)
class Operator:
    twin: Twin
    password: str
    token: str

    def signs_in(self, password: str) -> str | None:
        """The path that the page leads to; None: refused."""
        opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
        page = opener.open(f"{self.twin.web}/sign-in", timeout=10).read().decode()
        (token,) = set(re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page))
        said = {"csrfmiddlewaretoken": token, "email": "you@example.com", "password": password}
        request = Request(f"{self.twin.web}/sign-in", urlencode(said).encode(), {"referer": f"{self.twin.web}/sign-in"})
        try:
            with opener.open(request, timeout=10) as answer:
                path = urlsplit(answer.geturl()).path
        except HTTPError as refused:
            refused.close()
            return None
        return None if path == "/sign-in" else path

    def rest(self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> Any:
        given = {"authorization": f"Bearer {self.token}", **headers}
        answer = httpx.request(
            method, f"{self.twin.web}/api/v1{path}", json=body, headers=given, timeout=30, trust_env=False
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def agent(self, name: str) -> Any:
        return next((one for one in self.rest("GET", "/fleet/agents")["items"] if one["id"] == name), None)

    def published(
        self, place: str, policy: Mapping[str, Any], *, expected: int = 0, agents: Collection[str] = ("agent-1",)
    ) -> None:
        """Until these agents have acknowledged it, each with the hash of what it holds."""
        org, _, ns = place.partition("/")
        where = f"/orgs/{org}/namespaces/{ns}/policy"
        told = self.rest("PUT", where, {"policy": policy}, **{"if-match": f'"{expected}"'})
        rollout = eventually(
            lambda: self.rest("GET", f"/rollouts/{told['rollout']}"), lambda found: found["state"] == "done"
        )
        acknowledged = {one["agent"] for one in rollout["agents"] if one["acknowledged"]}
        assert rollout["state"] == "done", rollout
        assert acknowledged >= set(agents), rollout
        for name in agents:
            shown = eventually(lambda name=name: self.agent(name), lambda found: found["in_sync"])  # type: ignore[misc]
            assert shown["applied_hash"] == shown["desired_hash"], shown


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    agent: str
    hit: float
    reason: str | None
    revision: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class Customer:
    """Asks one and the same question, streamed."""

    twin: Twin
    key: str = field(repr=False)
    answers: list[Answer] = field(default_factory=list)

    def asked_until(self, is_right: Callable[[Answer], bool] = lambda answer: True) -> Answer:
        """Whoever asks at once after a change is refused until gateways have heard of it."""
        not_yet = (openai.AuthenticationError, openai.NotFoundError, openai.InternalServerError)

        def tried() -> Answer | openai.APIStatusError:
            try:
                return self.asked()
            except not_yet as problem:
                return problem

        answer = eventually(tried, lambda found: isinstance(found, Answer) and is_right(found))
        assert isinstance(answer, Answer), f"{answer}\n{self.twin.said('gateway', 'agent', 'engine')}"
        return answer

    def asked(self) -> Answer:
        base = f"http://127.0.0.1:{self.twin.ports['gateway']}/v1"
        with (
            openai.DefaultHttpxClient(trust_env=False) as http,
            openai.OpenAI(base_url=base, api_key=self.key, http_client=http, max_retries=0, timeout=60) as client,
        ):
            raw = client.chat.completions.with_raw_response.create(
                model="luminet-demo",
                messages=[{"role": "user", "content": QUESTION}],
                max_tokens=4,
                temperature=0,
                stream=True,
            )
            pieces = [choice.delta.content or "" for chunk in raw.parse() for choice in chunk.choices]
            told = {name.removeprefix("x-luminet-"): value for name, value in raw.headers.items()}
        answer = Answer(
            text="".join(pieces),
            agent=told["agent"],
            hit=float(told["cache-hit"]),
            reason=told.get("miss-reason"),
            revision=int(told["policy-revision"]),
            prompt_tokens=int(told["prompt-tokens"]),
            cached_tokens=int(told["cached-tokens"]),
        )
        self.answers.append(answer)
        return answer
