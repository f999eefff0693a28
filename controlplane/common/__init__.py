"""Helpers that several packages of the control plane share. They import none of those packages."""
