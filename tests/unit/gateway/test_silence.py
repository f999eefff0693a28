"""When an engine has been silent for too long, by seconds that a test lets pass."""

from engine_agent.gateway.calling.dialling import CONNECT_SECONDS
from engine_agent.gateway.calling.dialling import SILENT_SECONDS as KERNEL_SECONDS
from engine_agent.gateway.engines import LOOK_SECONDS, TICK_SECONDS
from engine_agent.gateway.silence import MOST_TICK_SECONDS, SILENT_SECONDS, Silence

PROMISED_SECONDS = 10.0


def looked_at() -> Silence:
    silence = Silence()
    silence.look_begins()
    return silence


def ticks(silence: Silence, seconds: float) -> list[bool]:
    return [silence.passed(TICK_SECONDS) for _ in range(int(seconds / TICK_SECONDS))]


def test_silence_is_over_once() -> None:
    silence = looked_at()
    assert not any(ticks(silence, SILENT_SECONDS - TICK_SECONDS))
    assert ticks(silence, 3 * TICK_SECONDS) == [True, False, False]
    assert silence.is_over


def test_failed_looks_are_one_silence() -> None:
    silence = looked_at()
    for _ in range(int(SILENT_SECONDS) - 1):
        ticks(silence, 0.5)
        silence.look_ends()
        ticks(silence, 0.5)
        silence.look_begins()
    assert not silence.is_over
    ticks(silence, 1.0)
    assert silence.is_over


def test_answer_ends_silence() -> None:
    silence = looked_at()
    ticks(silence, SILENT_SECONDS)
    silence.spoke()
    silence.look_ends()
    assert not silence.is_over


def test_nobody_is_silent_who_was_not_asked() -> None:
    silence = looked_at()
    silence.look_ends()
    silence.spoke()
    ticks(silence, 2 * SILENT_SECONDS)
    assert not silence.is_over


def test_part_of_stream_begins_silence_again() -> None:
    silence = looked_at()
    ticks(silence, SILENT_SECONDS - 1)
    silence.spoke()
    ticks(silence, SILENT_SECONDS - 1)
    assert not silence.is_over
    ticks(silence, 1)
    assert silence.is_over


def test_pause_of_gateway_counts_little() -> None:
    silence = looked_at()
    assert not silence.passed(3_600)
    assert silence.seconds == MOST_TICK_SECONDS


def test_verdict_fits_in_what_is_promised() -> None:
    """A machine vanishes just after it answered a look; the verdict comes with a tick."""
    assert LOOK_SECONDS + SILENT_SECONDS + TICK_SECONDS < PROMISED_SECONDS
    assert KERNEL_SECONDS + TICK_SECONDS < PROMISED_SECONDS
    assert 3 * CONNECT_SECONDS < PROMISED_SECONDS
