"""What every page's frame needs to know."""

from django.conf import settings
from django.http import HttpRequest

from controlplane.settings.env import is_loopback
from controlplane.version import version

THEMES = ("system", "light", "dark")
THEME_COOKIE = "luminet_theme"


def theme_of(request: HttpRequest) -> str:
    chosen = request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else "system"


def frame(request: HttpRequest) -> dict[str, object]:
    return {
        "theme": theme_of(request),
        "themes": THEMES,
        "luminet_version": version(),
        "is_on_this_machine": is_loopback(settings.ALLOWED_HOSTS[0]),
    }
