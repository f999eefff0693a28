"""Alerts, the audit trail, the calculator and settings."""
