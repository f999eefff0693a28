"""What a gateway tells of itself has bounded labels, whoever is refused."""

from prometheus_client.parser import text_string_to_metric_families

from engine_agent.gateway.metrics import MOST_ORGANISATIONS, OTHER, Observer


def limited(observer: Observer) -> dict[tuple[str, str], float]:
    text = observer.exposition({}, []).decode()
    return {
        (one.labels["organisation"], one.labels["limit"]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == "luminet_gateway_limited_total"
    }


def test_whose_limits_refuse_is_told_of_many_organisations_and_of_the_rest_together() -> None:
    observer = Observer()
    for number in range(MOST_ORGANISATIONS + 20):
        observer.limited(f"org-{number}", "requests_per_minute")
    observer.limited("org-0", "requests_per_minute")
    observer.limited("org-0", "tokens_per_minute")
    found = limited(observer)
    assert len({organisation for organisation, _ in found}) == MOST_ORGANISATIONS + 1
    assert found[OTHER, "requests_per_minute"] == 20
    assert (found["org-0", "requests_per_minute"], found["org-0", "tokens_per_minute"]) == (2, 1)


def test_what_goes_wrong_is_counted_from_nought_so_that_a_rate_sees_the_first() -> None:
    text = Observer().exposition({}, []).decode()
    for series in (
        'luminet_gateway_retries_total{reason="unreachable"}',
        'luminet_gateway_errors_total{reason="engine_lost"}',
        'luminet_gateway_limited_total{limit="requests_per_minute",organisation="other"}',
        'luminet_gateway_waiting_seconds_count{outcome="overloaded"}',
    ):
        assert f"\n{series} 0.0\n" in text


def test_it_tells_its_own_memory_and_version_once() -> None:
    text = Observer().exposition({}, []).decode()
    assert text.count("# TYPE luminet_build_info gauge") == 1
    assert text.count("\nprocess_resident_memory_bytes ") <= 1  # none where there is no /proc
