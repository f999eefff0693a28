"""The table, the JSON and the plots of outcomes that are made up."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from engine_agent.tools.replay.outcome import Moment, Outcome, Tally
from engine_agent.tools.replay.plots import hit_rate_fact, resident_fact, write_plots
from engine_agent.tools.replay.policies import Setup, Ttl
from engine_agent.tools.replay.report import document, headline, table
from tests.unit.replay.examples import made_up


def tally(cached: int, **missed: int) -> Tally:
    return Tally(10, cached + sum(missed.values()), cached, Counter(missed))


def outcome(setup: Setup, peak: int, **tallies: Tally) -> Outcome:
    moments = [Moment(60.0 * k, peak * min(k, 20) // 20) for k in range(30)]
    return Outcome(setup, tallies, moments, 1.5)


def several() -> list[Outcome]:
    return [
        outcome(Setup(Ttl()), 90_000_000, default=tally(374_000, cold=600_000, tail=26_000)),
        outcome(
            Setup(Ttl("sliding", 300)), 10_900_000, default=tally(293_000, cold=600_000, expired=81_000, tail=26_000)
        ),
    ]


def test_a_line_says_hits_memory_and_why_the_rest_missed_and_adds_up() -> None:
    caption, heads, unlimited, sliding = table(several(), columns=100).splitlines()
    assert caption == "Share of prompt tokens served from cache, and why the rest missed."
    assert heads.split() == ["policy", "hits", "peak", "resident", "cold", "expired", "tail"]
    assert unlimited.split()[:2] == ["no", "TTL"]
    assert unlimited.split()[3:] == ["37.4", "%", "90.0", "M", "tokens", "60.0", "%", "–", "2.6", "%"]
    assert sliding.split()[4:] == ["29.3", "%", "10.9", "M", "tokens", "60.0", "%", "8.1", "%", "2.6", "%"]


def test_columns_line_up_and_fit_into_the_terminal() -> None:
    for columns in (80, 100, 160):
        lines = table(several(), columns=columns).splitlines()
        assert max(map(len, lines)) <= columns
        ends = {line.rindex("%") for line in lines[2:]}
        assert len(ends) == 1
        assert lines[1].endswith("tail")
        assert len(lines[1]) - 1 in ends


def test_a_bar_is_as_long_as_the_hit_rate() -> None:
    bars = [line[line.index("█") :].split()[0] for line in table(several(), columns=200).splitlines()[2:]]
    assert [len(bar) for bar in bars] == [9, 7]  # of 24: 37.4 % and 29.3 %, to an eighth
    nothing = [outcome(Setup(Ttl()), 10, default=tally(0, cold=10))]
    assert "█" not in table(nothing, columns=100)


def test_several_namespaces_have_a_line_each_below_their_policy() -> None:
    split = outcome(Setup(Ttl(), 1_536_000), 1_500_000, quiet=tally(20, cold=80), flooder=tally(0, cold=100))
    total, quiet, flooder = table([split], columns=100).splitlines()[2:]
    assert total.startswith("no TTL, pool 1.54 M  ")
    assert "10.0 %  1.50 M tokens   90.0 %" in total
    assert quiet.startswith("  quiet   ")
    assert "20.0 %                  80.0 %" in quiet
    assert flooder.split() == ["flooder", "0.0", "%", "100.0", "%"]


def test_of_very_many_namespaces_the_rest_is_counted() -> None:
    crowd = outcome(Setup(Ttl()), 10, **{f"n{k}": tally(1, cold=1) for k in range(33)})
    lines = table([crowd], columns=100).splitlines()
    assert lines[-1] == "13 more namespaces: --json has them all."
    assert len(lines) == 2 + 1 + 20 + 2


def test_what_waited_or_never_fitted_is_said_below() -> None:
    busy = Tally(3, 100, 50, Counter(refused=50), refused_requests=1, waited_requests=2, longest_wait_seconds=90)
    lines = table([outcome(Setup(Ttl()), 10, default=busy)], columns=100).splitlines()
    assert lines[-2:] == [
        "no TTL: 1 request never fitted; its tokens count as missed.",
        "no TTL: 2 requests waited for room, at most 90 s.",
    ]


def test_colours_change_nothing_but_colours() -> None:
    plain, colourful = table(several(), columns=100), table(several(), columns=100, is_colourful=True)
    assert "\x1b" not in plain
    for code in ("\x1b[34m", "\x1b[0m", "\x1b[2m", "\x1b[1m"):
        colourful = colourful.replace(code, "")
    assert colourful == plain


def test_the_headline_says_what_was_replayed() -> None:
    assert headline("a.jsonl", made_up(100), 16).startswith("a.jsonl · 100 requests in ")
    assert headline("a.jsonl", made_up(100), 16).endswith(" prompt tokens in blocks of 16 · namespace default")


def test_programs_get_tokens() -> None:
    found = document("a.jsonl", made_up(100), several())
    assert found["trace"]["requests"] == 100
    row = found["rows"][1]
    assert (row["ttl_mode"], row["ttl_seconds"], row["pool_tokens"]) == ("sliding", 300, None)
    assert (row["hit_ratio"], row["cached_tokens"], row["prompt_tokens"]) == (0.293, 293_000, 1_000_000)
    assert row["missed_tokens_by_reason"] == {"cold": 600_000, "expired": 81_000, "tail": 26_000}
    assert [one["namespace"] for one in row["by_namespace"]] == ["default"]
    assert row["resident"][-1] == [1740, 10_900_000]
    assert found["rows"][0]["ttl_seconds"] is None


def test_moments_are_thinned_to_the_fullest_of_each_stretch() -> None:
    moments = [Moment(float(k), 7 if k == 500 else 1) for k in range(10_000)]
    thinned = Outcome(Setup(Ttl()), {}, moments, 0).thinned(100)
    assert 90 <= len(thinned) <= 100
    assert max(one.resident_tokens for one in thinned) == 7
    assert Outcome(Setup(Ttl()), {}, moments[:50], 0).thinned(100) == moments[:50]


# Plots.


def test_titles_state_the_fact() -> None:
    assert hit_rate_fact(several()) == "No TTL serves 37.4 % of prompt tokens from cache, sliding 300 s 29.3 %"
    assert resident_fact(several()) == "Sliding 300 s keeps 78 % of the hits of no TTL with 12 % of its memory"
    assert hit_rate_fact(several()[:1]) == "No TTL serves 37.4 % of prompt tokens from cache"
    assert resident_fact(several()[:1]) == "No TTL holds at most 90.0 M tokens"
    nothing = [
        outcome(Setup(Ttl()), 0, default=tally(0, cold=10)),
        outcome(Setup(Ttl("sliding", 1)), 0, default=Tally()),
    ]
    assert resident_fact(nothing) == "No TTL holds at most 0 tokens"


def test_both_plots_are_drawn_as_svg_and_png(tmp_path: Path) -> None:
    written = write_plots(several(), tmp_path / "new")
    assert [path.name for path in written] == ["hit-rate.svg", "hit-rate.png", "resident.svg", "resident.png"]
    for path in written:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
    first = {path.name: path.read_bytes() for path in written}
    assert {path.name: path.read_bytes() for path in write_plots(several(), tmp_path / "new")} == first
