"""The commands that parse their own arguments with the standard library."""

from typing import Final, NamedTuple


class Standalone(NamedTuple):
    """A command that parses its own arguments, so it runs even if only a part of Luminet, or none, is installed."""

    module: str  # a name, because the control plane imports only the shared modules of the data plane
    extra: str  # the extra that it needs
    about: str


STANDALONE: Final = {
    "doctor": Standalone(
        "controlplane.doctor.command", "control", "say what is well here, what is not, and what to do"
    ),
    "engine": Standalone(
        "engine_agent.server.command",
        "engine",
        "serve a model's folder with an OpenAI API, with one namespace and a key of its own",
    ),
    "agent": Standalone(
        "engine_agent.sidecar.command",
        "engine",
        "a machine of a fleet: join a control plane, and have an engine obey it",
    ),
    "gateway": Standalone(
        "engine_agent.gateway.command",
        "agent",
        "the front door of a fleet: an OpenAI API that sends each request to an engine",
    ),
    "simulate": Standalone(
        "engine_agent.sidecar.simulate", "agent", "many agents of a fleet without engines, to try a control plane"
    ),
    "bench": Standalone(
        "engine_agent.tools.loadgen.command",
        "engine",
        "load any OpenAI server and say how it answered: percentiles, throughput, cached tokens",
    ),
    "quality": Standalone(
        "engine_agent.tools.quality.command",
        "engine",
        "measure what each KV format costs in quality on a model, and judge it",
    ),
    "calibrate": Standalone(
        "engine_agent.tools.quality.calibrating",
        "engine",
        "find a model's static scales and key means on a text, and save them beside it",
    ),
    "savings": Standalone(
        "engine_agent.tools.savings.command",
        "engine",
        "measure what prefix caching saves on a model: first-token times, cost, capacity",
    ),
    "replay": Standalone(
        "engine_agent.tools.replay.command",
        "control",
        "say what hit rate each cache policy would give a recorded request trace",
    ),
    "lint-prompt": Standalone(
        "engine_agent.tools.lint_prompt",
        "agent",
        "find what varies inside prompts that are otherwise the same, on this machine",
    ),
}
