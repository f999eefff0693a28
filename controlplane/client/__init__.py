"""The part of `luminet` that speaks to a control plane, here or elsewhere, over REST alone. It knows no database."""
