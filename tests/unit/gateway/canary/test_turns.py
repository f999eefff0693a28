"""Who probes an engine when: however many gateways there are, each engine is probed once in every turn."""

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.canary.turns import Turns

SECONDS = 10.0
NAMES = st.sets(st.from_regex(r"gateway-[1-9][0-9]?", fullmatch=True), min_size=1, max_size=7)
ENGINES = tuple(f"agent-{number}" for number in range(1, 41))


def of_each(gateways: set[str]) -> list[Turns]:
    return [Turns.among(gateways, own=name, seconds=SECONDS) for name in sorted(gateways)]


def probed(turns: Turns, engine: str, *, turns_long: int) -> list[float]:
    """The moments at which one gateway probes it."""
    found, after = list[float](), 0
    while (moment := turns.next_moment(engine, after=after)) < (turns_long + 1) * SECONDS:
        found.append(moment)
        after = turns.number(moment)
    return found


@given(NAMES, st.sampled_from(ENGINES), st.integers(0, 10**9))
def test_a_turn_is_one_gateways_and_all_say_whose(gateways: set[str], engine: str, number: int) -> None:
    assert len({one.whose(engine, number) for one in of_each(gateways)}) == 1
    assert {of_each(gateways)[0].whose(engine, number + more) for more in range(len(gateways))} == gateways


@given(NAMES, st.sampled_from(ENGINES), st.integers(0, 10**9))
def test_the_next_moment_is_in_the_first_turn_of_ones_own(gateways: set[str], engine: str, after: int) -> None:
    for turns in of_each(gateways):
        number = turns.number(turns.next_moment(engine, after=after))
        mine = [one for one in range(after + 1, number + 1) if turns.whose(engine, one) == turns.own]
        assert mine == [number]


@given(NAMES)
def test_all_together_probe_an_engine_once_in_every_turn(gateways: set[str]) -> None:
    moments = [at for turns in of_each(gateways) for at in probed(turns, "agent-1", turns_long=50)]
    assert sorted(int(at // SECONDS) for at in moments) == list(range(1, 51))


def test_one_alone_probes_in_every_turn_also_where_it_was_told_of_nobody() -> None:
    assert len(probed(Turns.among((), own="gateway-1", seconds=SECONDS), "agent-1", turns_long=50)) == 50


def test_who_is_not_named_yet_has_turns_all_the_same() -> None:
    new = Turns.among(("gateway-1", "gateway-2"), own="gateway-3", seconds=SECONDS)
    assert len(probed(new, "agent-1", turns_long=30)) == 10


def test_in_one_turn_the_work_is_shared_over_engines() -> None:
    turns = Turns.among(("gateway-1", "gateway-2"), own="gateway-1", seconds=SECONDS)
    mine = sum(turns.whose(engine, 7) == "gateway-1" for engine in ENGINES)
    assert 10 <= mine <= 30, "not all engines are one gateway's in the same ten seconds"


def test_moments_are_in_step_with_nothing() -> None:
    turns = Turns.among((), own="gateway-1", seconds=SECONDS)
    within = [at % SECONDS for at in probed(turns, "agent-1", turns_long=200)]
    assert min(within) < SECONDS / 4
    assert max(within) > SECONDS * 3 / 4


def test_a_moment_further_ahead_than_any_turn_says_that_the_clock_was_set_back() -> None:
    turns = Turns.among(("gateway-1", "gateway-2"), own="gateway-1", seconds=SECONDS)
    moment = turns.next_moment("agent-1", after=turns.number(1_000.0))
    assert turns.is_near(moment, 1_000.0)
    assert not turns.is_near(moment, 1_000.0 - 3_600)
