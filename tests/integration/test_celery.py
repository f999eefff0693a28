import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery.contrib.testing.worker import start_worker

from controlplane.celery import app
from controlplane.common.health import BEAT_ALIVE_KEY, NotReady, beat_check, broker_check, database_check, worker_check
from controlplane.common.logs import JsonFormatter
from controlplane.common.request_id import request_id_bound, request_id_current
from tests.support.ports import free_port
from tests.support.waiting import wait_until

seen: list[dict[str, Any]] = []


@app.task(name="tests.look", bind=True)
def look(self: Any, then: int = 0) -> None:
    seen.append({"request_id": request_id_current(), "sent_at": self.request.luminet_sent_at})
    if then:
        look.delay(then=then - 1)


@app.task(name="tests.fail")
def fail() -> None:
    raise ValueError("on purpose")


@pytest.fixture(scope="module")
def worker(redis_server: str) -> Iterator[Any]:
    """A real worker on the real broker, in threads of this process."""
    # One thread, as the pool of the real worker has several: what a task leaves behind, the next one finds.
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, shutdown_timeout=30) as running:
        yield running


@pytest.fixture(autouse=True)
def _empty() -> None:
    seen.clear()


def test_a_task_knows_the_request_that_set_it_off_and_so_do_the_tasks_it_starts(worker: Any) -> None:
    with request_id_bound("from-the-web"):
        look.delay(then=2)
    wait_until(lambda: len(seen) >= 3)
    assert {one["request_id"] for one in seen} == {"from-the-web"}


def test_a_task_nobody_asked_for_has_an_id_of_its_own(worker: Any) -> None:
    look.delay()
    look.delay()
    wait_until(lambda: len(seen) >= 2)
    assert None not in {one["request_id"] for one in seen}
    assert len({one["request_id"] for one in seen}) == 2


def test_a_task_knows_when_it_was_sent(worker: Any) -> None:
    before = time.time()
    look.delay()
    wait_until(lambda: len(seen) >= 1)
    assert before <= seen[0]["sent_at"] <= time.time()


class Kept(logging.Handler):
    """Lines as production writes them, in the thread that wrote them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


def test_a_task_that_fails_is_logged_with_its_name_and_request(worker: Any) -> None:
    kept = Kept()
    logging.getLogger("controlplane.celery").addHandler(kept)
    try:
        with request_id_bound("r-9"):
            fail.delay()
            look.delay()
            wait_until(lambda: len(seen) >= 1)
    finally:
        logging.getLogger("controlplane.celery").removeHandler(kept)
    assert [(line["task"], line["request_id"]) for line in kept.lines] == [("tests.fail", "r-9")]


def test_the_messages_obey_the_settings_that_matter() -> None:
    options = app.conf.broker_transport_options
    assert (options["visibility_timeout"], options["unacked_restore_interval"]) == (60, 2)
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier, app.conf.accept_content) == (
        True,
        1,
        ["json"],
    )


def test_the_worker_check_wants_an_answer_from_that_worker(worker: Any, redis_server: str) -> None:
    worker_check(redis_server, worker.hostname)
    with pytest.raises(NotReady, match="control@elsewhere did not answer a ping"):
        worker_check(redis_server, "control@elsewhere", timeout_seconds=0.3)


def test_the_beat_check_believes_what_beat_did(redis_server: str) -> None:
    with pytest.raises(NotReady, match="has not sent anything"):
        beat_check(redis_server)
    with redis.Redis.from_url(redis_server) as client:
        client.set(BEAT_ALIVE_KEY, 1000)
    beat_check(redis_server, now=1005)
    with pytest.raises(NotReady, match="has sent nothing for 60 s"):
        beat_check(redis_server, now=1060)


def test_checks_of_what_is_away_say_so_without_secrets() -> None:
    port = free_port()
    for check, url in (
        (database_check, f"postgresql://luminet:hush@127.0.0.1:{port}/luminet"),
        (broker_check, f"redis://:hush@127.0.0.1:{port}/0"),
        (beat_check, f"redis://:hush@127.0.0.1:{port}/0"),
    ):
        with pytest.raises(NotReady) as caught:
            check(url)
        assert "hush" not in str(caught.value)
