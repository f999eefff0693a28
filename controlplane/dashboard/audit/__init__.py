"""Pages of the audit trail."""
