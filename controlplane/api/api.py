"""The assembled API: all groups of operations, one error handling, one description."""

from ninja import NinjaAPI

from controlplane.api.callers import Bearer
from controlplane.api.parser import StrictParser
from controlplane.api.problems import problems_register
from controlplane.api.routes import (
    alerts,
    calculator,
    config,
    demo_traffic,
    diagnostics,
    evictions,
    fleet,
    invoices,
    namespaces,
    organisations,
    people,
    policies,
    prices,
    quality,
    reconciliation,
    rollouts,
    stats,
    trail,
    whatif,
)
from controlplane.common.version import version

GROUPS = (
    organisations.group,
    namespaces.group,
    policies.group,
    rollouts.group,
    config.group,
    calculator.group,
    people.group,
    fleet.group,
    demo_traffic.group,
    quality.group,
    alerts.group,
    stats.group,
    reconciliation.group,
    whatif.group,
    diagnostics.group,
    evictions.group,
    prices.group,
    invoices.group,
    trail.group,
)

api = NinjaAPI(
    title="Luminet",
    version=version(),
    auth=Bearer(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,  # served in views.py, with examples
    urls_namespace="api",
)
for group in GROUPS:
    api.add_router("", group.router)
problems_register(api)
