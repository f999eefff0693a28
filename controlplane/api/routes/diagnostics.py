"""Operations that explain cache misses: of a namespace's prompts, and of prompts that the caller sends."""

from typing import Any

from controlplane.analytics.diagnostics import diagnostics
from controlplane.analytics.linting import prompts_linted
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.diagnostics import DiagnosticsShown, LintFound, LintShown, PromptsToLint
from engine_agent.divergence.linting import LintFinding
from engine_agent.divergence.prompt_texts import NoPrompt, PromptText, prompt_of
from tenants import access
from tenants.errors import FieldProblem, InvalidFields

group = Group("Numbers")


@group.get("/orgs/{org}/namespaces/{ns}/diagnostics", access.STATS_READ, DiagnosticsShown)
def diagnostics_get(call: Call) -> Answer:
    """Say why a namespace's prompts miss.

    What varies inside prompts that are otherwise the same, from the gateways' samples of the last 24 hours: where, how
    often, and what moving it to the end would be worth. Of the samples keyed hashes are kept and no text.
    """
    return Answer(DiagnosticsShown.model_validate(diagnostics(call.namespace)))


@group.post("/lint/prompt", access.ANYONE, LintShown, status=200, changes_nothing=True)
def lint_prompt(call: Call, body: PromptsToLint) -> Answer:
    """Look at prompts.

    The same of prompts in the body, with the places in their text and what stands there. Nothing of them is kept.
    """
    found = prompts_linted(_prompts(body.prompts))
    return Answer(LintShown.of(found, findings=[_flat(one) for one in found.findings]))


def _prompts(told: list[Any]) -> list[PromptText]:
    found: list[PromptText] = []
    for number, one in enumerate(told):
        try:
            found.append(prompt_of(one))
        except NoPrompt as problem:
            raise InvalidFields([FieldProblem(f"prompts[{number}]", str(problem))]) from None
    return found


def _flat(one: LintFinding) -> LintFound:
    return LintFound.of(one.finding, advice=one.advice, looks_like=one.looks_like, excerpts=one.excerpts)
