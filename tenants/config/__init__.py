"""GitOps: organisations and policies as one document, the plan of its changes, and their application."""
