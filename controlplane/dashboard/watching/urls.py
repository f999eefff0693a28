"""Where they are."""

from django.urls import path

from controlplane.dashboard.watching import (
    alert_rules,
    alerts,
    audit,
    calculator,
    settings,
    settings_groups,
    settings_prices,
    settings_quality,
    settings_tokens,
)

urlpatterns = [
    path("calculator", calculator.calculator, name="calculator"),
    path("alerts", alerts.alerts, name="alerts"),
    path("alerts/now", alerts.alerts_now, name="alerts-now"),
    path("alerts/rules", alert_rules.alert_rules, name="alert-rules"),
    path("alerts/rules/<uuid:rule>", alert_rules.alert_rule, name="alert-rule"),
    path("alerts/<uuid:alert>", alerts.alert, name="alert"),
    path("audit", audit.audit, name="audit"),
    path("audit/export", audit.audit_export, name="audit-export"),
    path("settings", settings.settings, name="settings"),
    path("settings/prices", settings_prices.settings_prices, name="settings-prices"),
    path("settings/prices/remove", settings_prices.settings_price_remove, name="settings-price-remove"),
    path("settings/tokens", settings_tokens.settings_tokens, name="settings-tokens"),
    path("settings/groups", settings_groups.settings_groups, name="settings-groups"),
    path("settings/quality", settings_quality.settings_quality, name="settings-quality"),
]
