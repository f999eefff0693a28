"""Who has new numbers is named, as long as it fits."""

from controlplane.analytics.notices import EVERYBODY, MOST_BYTES, payload, payload_read


def test_organisations_are_named_in_order() -> None:
    assert payload({17, 3}) == "3,17"
    assert payload_read("3,17") == frozenset({3, 17})


def test_where_they_do_not_fit_everybody_is_told() -> None:
    many = range(10**9, 10**9 + MOST_BYTES // 11 + 2)
    assert payload(list(many)) == EVERYBODY
    assert payload_read(EVERYBODY) is None
    assert len(payload(list(many)[:-2])) <= MOST_BYTES
