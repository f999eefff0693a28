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
    lint = prompts_linted(_prompts(body.prompts))
    return Answer(LintShown.of(lint, findings=[_flat(finding) for finding in lint.findings]))


def _prompts(raw_prompts: list[Any]) -> list[PromptText]:
    prompts: list[PromptText] = []
    for number, raw_prompt in enumerate(raw_prompts):
        try:
            prompts.append(prompt_of(raw_prompt))
        except NoPrompt as problem:
            raise InvalidFields([FieldProblem(f"prompts[{number}]", str(problem))]) from None
    return prompts


def _flat(finding: LintFinding) -> LintFound:
    return LintFound.of(
        finding.finding, advice=finding.advice, looks_like=finding.looks_like, excerpts=finding.excerpts
    )
