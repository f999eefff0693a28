"""Whose a request is: its server decides."""

from hashlib import sha256

import pytest

from engine_agent.contracts.identity import HEADER, Identity, sign
from engine_agent.http.errors import ApiError
from engine_agent.server.guard import SignedGuard
from engine_agent.vllm_front.config import FrontConfig
from engine_agent.vllm_front.whose import Caller, GatewayGuard, guard

SECRET = b"the-secret-that-gateways-and-vllm-share"
NOW = 1_000.0


def identity(request_id: str = "r", deadline: float | None = None, audience: str = "vllm") -> Identity:
    about = {"organisation_id": "1", "organisation": "acme", "namespace_id": "7", "namespace": "chat"}
    return Identity(
        **about,
        scope="infer",
        policy_revision=1,
        request_id=request_id,
        attempt=1,
        kind="customer",
        deadline=deadline,
        issued_at=NOW,
        expires_at=NOW + 30,
        audience=audience,
        elsewhere_tokens=64,
    )


def signed(**about: object) -> dict[str, str]:
    return {HEADER: sign(identity(**about), SECRET)}  # type: ignore[arg-type]


def refusal(asked: GatewayGuard, headers: dict[str, str]) -> int:
    with pytest.raises(ApiError) as refused:
        asked.caller(headers)
    return refused.value.status


def test_a_gateways_signature_says_whose_it_is_once() -> None:
    gateway = GatewayGuard(SignedGuard([SECRET], "vllm", clock=lambda: NOW), clock=lambda: NOW)
    header = signed()
    assert gateway.caller(header) == Caller("7", "chat", "customer", 64)
    assert refusal(gateway, header) == 409
    assert refusal(gateway, signed(request_id="for-another", audience="vllm-2")) == 401
    assert refusal(gateway, signed(request_id="late", deadline=NOW)) == 504
    assert refusal(gateway, {"authorization": "Bearer key"}) == 401


def test_a_key_is_one_namespaces_and_an_unknown_one_nobodys() -> None:
    keys = guard(FrontConfig(keys={sha256(b"key-a").hexdigest(): "acme", sha256(b"key-b").hexdigest(): "bolt"}))
    assert keys.caller({"authorization": "Bearer key-a"}) == Caller("acme", "acme")
    assert keys.caller({"authorization": "bearer key-b"}) == Caller("bolt", "bolt")
    for headers in ({}, {"authorization": "Bearer key-c"}, {"authorization": "Bearer "}, {"authorization": "key-a"}):
        with pytest.raises(ApiError, match="none that is known here"):
            keys.caller(headers)


def test_a_default_namespace_is_everybodys_and_without_anything_nobody_is_let_in() -> None:
    assert guard(FrontConfig(default_namespace="acme")).caller({}) == Caller("acme", "acme")
    with pytest.raises(ApiError, match="has configured no namespace"):
        guard(FrontConfig()).caller({"authorization": "Bearer key"})
