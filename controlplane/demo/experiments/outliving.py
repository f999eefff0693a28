"""The process of an experiment that outlives the web process. Its arguments name the experiment and the actor."""

import os
import sys


def main(arguments: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    import django

    django.setup(set_prefix=False)
    from controlplane.demo.experiments.registry import EXPERIMENTS
    from controlplane.demo.experiments.running import experiment_run, experiment_told
    from tenants.access import actor_for_operator
    from tenants.models import User

    kind, user, address, request_id = arguments
    experiment_log = experiment_told(kind)
    if experiment_log is not None and not experiment_log.is_over:
        operator = User.objects.get(pk=user, is_operator=True, is_active=True)
        experiment_run(
            experiment_log, EXPERIMENTS[kind][1], actor_for_operator(operator, address=address, request_id=request_id)
        )


if __name__ == "__main__":
    main(sys.argv[1:])
