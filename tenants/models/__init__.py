"""The tables of the tenants domain, a module for each subject. Fields and constraints only; services write."""

from tenants.models.cache import Operation, Pin
from tenants.models.credentials import ApiKey, OperatorToken
from tenants.models.organisations import AgentGroup, Namespace, NamespaceKey, Organisation
from tenants.models.people import Member, OneTimeLink, SignInAttempt, User
from tenants.models.policies import PolicyLevel, PolicyRevision
from tenants.models.trail import AuditHead, AuditRecord, IdempotentRequest

__all__ = [
    "AgentGroup",
    "ApiKey",
    "AuditHead",
    "AuditRecord",
    "IdempotentRequest",
    "Member",
    "Namespace",
    "NamespaceKey",
    "OneTimeLink",
    "Operation",
    "OperatorToken",
    "Organisation",
    "Pin",
    "PolicyLevel",
    "PolicyRevision",
    "SignInAttempt",
    "User",
]
