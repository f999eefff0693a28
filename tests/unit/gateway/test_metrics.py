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
