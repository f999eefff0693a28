"""A gateway's face for pages that send requests: each key a tenant of its own, the same messages again a hit."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

PROMPT, CACHED = 1_600, 1_584


@dataclass
class StandIn:
    """`breaks_at`: from which request on it answers 500. `leaks`: serves one tenant what another has asked."""

    address: str = ""
    breaks_at: int = 1_000
    leaks: bool = False
    reasons: list[str] = field(default_factory=list)  # of the next requests: missed, for this reason
    unknown_keys: int = 0  # so many looks at /v1/models are refused first
    asked: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)  # key, body, namespace
    seen: set[tuple[str, str]] = field(default_factory=set)

    def answer(self, key: str, body: dict[str, Any], namespace: str) -> tuple[int, str]:
        """Cached tokens and why the rest was missed."""
        self.asked.append((key, body, namespace))
        mark = ("" if self.leaks else key, json.dumps(body["messages"]))
        is_known = mark in self.seen
        self.seen.add(mark)
        reason = self.reasons.pop(0) if self.reasons else ""
        if reason:
            return 0, reason
        return (CACHED, "none") if is_known else (0, "cold")


@contextmanager
def stand_in_gateway() -> Iterator[StandIn]:
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            if state.unknown_keys:
                state.unknown_keys -= 1
                self._say(401, b'{"error": {"message": "unknown key"}}')
            else:
                self._say(200, b'{"data": [{"id": "m"}]}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            key = self.headers["authorization"].removeprefix("Bearer ")
            namespace = self.headers.get("x-luminet-namespace", "")
            cached, reason = state.answer(key, body, namespace)
            if len(state.asked) >= state.breaks_at:
                self._say(500, b'{"error": {"message": "<script>broken</script>"}}')
                return
            hit = f"{cached * 1000 // PROMPT / 10:.1f}"
            headers = {
                "x-luminet-cache-hit": hit,
                "x-luminet-cached-tokens": str(cached),
                "x-luminet-prompt-tokens": str(PROMPT),
                "x-luminet-miss-reason": reason,
                "x-luminet-agent": "agent-1",
                "x-luminet-namespace": namespace,
            }
            usage = {"prompt_tokens": PROMPT, "prompt_tokens_details": {"cached_tokens": cached}}
            events = [{"choices": [{"delta": {"content": "yes"}}], "usage": None}, {"choices": [], "usage": usage}]
            told = "".join(f"data: {json.dumps(one)}\n\n" for one in events) + "data: [DONE]\n\n"
            self._say(200, told.encode(), **headers)

        def _say(self, status: int, told: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
