"""The URLs of the settings."""

from django.urls import URLPattern, path

from controlplane.dashboard.settings import groups, prices, quality, settings, tokens

urlpatterns: list[URLPattern] = [
    path("settings", settings.settings, name="settings"),
    path("settings/prices", prices.settings_prices, name="settings-prices"),
    path("settings/prices/remove", prices.settings_price_remove, name="settings-price-remove"),
    path("settings/tokens", tokens.settings_tokens, name="settings-tokens"),
    path("settings/groups", groups.settings_groups, name="settings-groups"),
    path("settings/quality", quality.settings_quality, name="settings-quality"),
]
