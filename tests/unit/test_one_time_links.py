import pytest

from controlplane.common.one_time_links import is_one_time_link, without_secrets

SECRET = "q3hX_-" + "x" * 37


def test_the_secret_of_a_link_is_found_wherever_it_is_written(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "/{kind}/{secret}",
        "/{kind}/{secret}/",
        "//{kind}//{secret}",
        "/{kind}/ {secret}",
        "Forbidden (CSRF token missing.): /{kind}/{secret}",
        "<ASGIRequest: GET '/{kind}/{secret}'>",
        '{{"path": "/{kind}/{secret}"}}',
        '"GET /{kind}/{secret}?utm=1 HTTP/1.1" 200',
        "https://luminet.example/{kind}/{secret}#top",
        "/sign-in?next=%2F{kind}%2F{secret}",
        "/sign-in?next=%2f{kind}%2f{secret}&x=1",
    ]
    for around in cases:
        for kind in ("invitation", "reset", "Invitation"):
            with subtests.test(msg=f"{kind}, {around}"):
                text = without_secrets(around.format(kind=kind, secret=SECRET))
                assert SECRET not in text
                assert text.count("…") == 1


@pytest.mark.parametrize(
    "text", ["/orgs/acme/members", "/invitation/", "an invitation/reset", '{"a": "/reset/", "b": 1}']
)
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_a_path_that_begins_like_one_is_a_link() -> None:
    assert is_one_time_link(f"/reset/{SECRET}")
    assert not is_one_time_link(f"/api/v1/docs/reset/{SECRET}")
    assert not is_one_time_link("/invitation/")
