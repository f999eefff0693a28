"""The registry of experiments: for each kind, its description and the function that runs it."""

from collections.abc import Mapping
from typing import Final

from controlplane.demo.experiments.kinds import fault, flood, hit, isolation, policy, prompt_fix
from controlplane.demo.experiments.running import Experiment
from controlplane.demo.experiments.trials import About

EXPERIMENTS: Final[Mapping[str, tuple[About, Experiment]]] = {
    about.kind: (about, run)
    for about, run in (
        (hit.ABOUT, hit.hit),
        (isolation.ABOUT, isolation.isolation),
        (policy.ABOUT, policy.policy),
        (prompt_fix.ABOUT, prompt_fix.prompt_fix),
        (flood.ABOUT, flood.flood),
        (fault.ABOUT, fault.fault),
    )
}
OUTLIVING: Final = frozenset({fault.ABOUT.kind})  # these kill the process that serves the page
