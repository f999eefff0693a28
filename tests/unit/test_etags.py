import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.errors import BadHeader, PreconditionRequired
from controlplane.api.etags import content_tag, etag_of, has_tag, if_none_match_matches, parse_if_match


def test_a_revision_is_a_strong_tag() -> None:
    assert (etag_of(0), etag_of(7)) == ('"0"', '"7"')


def test_if_match_lets_the_right_revision_through(subtests: pytest.Subtests) -> None:
    for header in ('"7"', ' "7" ', '"1", "7"', '"7","1"', '"a,b" , "7"', '"1",, "7",', 'W/"1", "7"', "*"):
        with subtests.test(msg=header):
            assert parse_if_match(header).matches(7)


def test_if_match_stops_every_other_revision(subtests: pytest.Subtests) -> None:
    for header in ('"1"', 'W/"7"', '"07"', '"seven"', '""', '"1", W/"7"', '"1,7"', '"70"'):
        with subtests.test(msg=header):
            assert not parse_if_match(header).matches(7)


def test_a_malformed_if_match_says_how_to_write_it(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "7",
        "",
        " ",
        "'7'",
        '"7',
        '7"',
        '"7" "8"',
        '"7""8"',
        '*, "7"',
        "**",
        'w/"7"',
        "W/7",
        '"7\t"',
        '" 7"',
    ]
    for header in cases:
        with subtests.test(msg=header):
            with pytest.raises(BadHeader, match='as in "7"') as caught:
                parse_if_match(header)
            assert caught.value.field == "If-Match"


def test_a_missing_if_match_is_asked_for() -> None:
    with pytest.raises(PreconditionRequired, match="is missing"):
        parse_if_match(None)


@pytest.mark.parametrize("header", ['"7"', 'W/"7"', '"1", W/"7"', "*"])
def test_if_none_match_compares_weakly(header: str) -> None:
    assert if_none_match_matches(header, 7)


@pytest.mark.parametrize("header", [None, "", "7", '"1"', '"7', '*, "7"'])
def test_without_a_usable_if_none_match_there_is_an_answer(header: str | None) -> None:
    assert not if_none_match_matches(header, 7)


@given(st.text(st.sampled_from('W/"* ,\t7a\\é'), max_size=30) | st.text(max_size=30))
def test_any_header_is_read_or_refused(header: str) -> None:
    if_none_match_matches(header, 7)
    with contextlib.suppress(BadHeader):
        parse_if_match(header).matches(7)


def test_a_header_made_to_hurt_is_refused_at_once() -> None:
    with pytest.raises(BadHeader):
        parse_if_match('"1"' + ", " * 30_000 + "x")
    with pytest.raises(BadHeader):
        parse_if_match('"1", ' * 10_000 + '"')


def test_a_tag_of_content_is_weak_and_the_same_until_it_changes() -> None:
    tag = content_tag({"requests": 1, "hit_ratio": 0.5})
    assert tag.startswith('W/"')
    assert content_tag({"hit_ratio": 0.5, "requests": 1}) == tag
    assert content_tag({"requests": 2, "hit_ratio": 0.5}) != tag


@pytest.mark.parametrize("header", ['"abc"', 'W/"abc"', '"x", W/"abc"', "*"])
def test_who_holds_a_tag_is_known_however_it_is_written(header: str) -> None:
    assert has_tag(header, 'W/"abc"')


@pytest.mark.parametrize("header", [None, "", "abc", '"ab"', 'W/"abcd"', '"abc'])
def test_who_does_not_gets_the_answer(header: str | None) -> None:
    assert not has_tag(header, 'W/"abc"')
