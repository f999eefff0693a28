"""In which order files of tests are run, and by whom, where several processes share them.

Whole files go to whoever is free. The longest begin first, so that none is still under way when all others are done;
files that share a stack stay with one process, so that there is one. Nothing here changes what a test finds: each may
still be run by itself.
"""

from collections.abc import Mapping

from xdist.scheduler import LoadFileScheduling

# Of tests/e2e: by the fixture that is their stack.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "stack": (
        "tests/e2e/test_customer_journey.py",
        "tests/e2e/test_docs.py",
        "tests/e2e/test_doctor.py",
        "tests/e2e/test_every_page.py",
        "tests/e2e/test_five_minutes.py",
        "tests/e2e/test_fleet.py",
        "tests/e2e/test_journeys.py",
        "tests/e2e/test_links.py",
        "tests/e2e/test_operator_journey.py",
        "tests/e2e/test_secrecy.py",
        "tests/e2e/test_tiles.py",
    ),
    "busy_stack": (
        "tests/e2e/test_monitoring.py",
        "tests/e2e/test_demo_traffic.py",
        "tests/e2e/test_numbers.py",
    ),
}
# More than half a minute each, on two cores with nothing else to do. What is missing here is merely run later.
LONGEST = (
    *TOGETHER["stack"],
    "tests/e2e/test_upgrade.py",
    "tests/integration/test_usage_faults.py",
    *TOGETHER["busy_stack"],
    "tests/e2e/test_stack.py",
    "tests/e2e/test_readme.py",
    "tests/integration/test_compose_twin.py",
    "tests/integration/test_fleet_faults.py",
    "tests/integration/test_doctor.py",
    "tests/integration/test_backups.py",
    "tests/integration/test_faults_under_load.py",
    "tests/integration/test_faults_full_disk.py",
    "tests/unit/kernels/test_compiles_for_hopper.py",
    "tests/integration/test_gateway_fleet.py",
    "tests/integration/test_edge.py",
    "tests/integration/test_engine_process.py",
    "tests/integration/test_constant_queries.py",
    "tests/integration/test_fleet_rollouts.py",
    "tests/integration/test_random_requests.py",
    "tests/unit/demo/test_model.py",
    "tests/unit/cache/test_isolation.py",
    "tests/unit/test_client_commands.py",
)
_GROUP_OF = {file: name for name, files in TOGETHER.items() for file in files}
_PLACE_OF = {file: place for place, file in enumerate(LONGEST)}


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def unit_of(nodeid: str) -> str:
    """What it is run together with."""
    file = file_of(nodeid)
    return _GROUP_OF.get(file, file)


def place_of(nodeid: str) -> int:
    """The lower, the sooner; the same for all files that are not among the longest."""
    return _PLACE_OF.get(file_of(nodeid), len(LONGEST))


class Shares(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's own, which gives away whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
