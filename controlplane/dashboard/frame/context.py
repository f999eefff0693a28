"""Template context for every page: theme, navigation and version."""

from django.http import HttpRequest

from controlplane.common.version import version
from controlplane.dashboard.frame.navigation import MOST_ORGANISATIONS, Group, customers_groups, operators_groups
from controlplane.dashboard.frame.requests import user_of
from tenants.access import memberships_of

THEMES = ("system", "light", "dark")
THEME_COOKIE = "luminet_theme"


def theme_of(request: HttpRequest) -> str:
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return theme if theme in THEMES else "system"


def navigation(request: HttpRequest) -> list[Group]:
    if not request.user.is_authenticated:
        return []
    user = user_of(request)
    if user.is_operator:
        return operators_groups(request.path)
    organisations = memberships_of(user).values_list("organisation__slug", "organisation__name")
    return customers_groups(request.path, list(organisations[:MOST_ORGANISATIONS]))


def frame(request: HttpRequest) -> dict[str, object]:
    return {
        "theme": theme_of(request),
        "navigation": lambda: navigation(request),  # lazy: only pages with the frame need it
        "themes": THEMES,
        "luminet_version": version(),
    }
