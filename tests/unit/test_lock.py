from controlplane.stack.lock import pins


def test_pins_are_versions_and_nothing_else() -> None:
    compiled = (
        "# a comment\n--find-links /somewhere\ntorch==2.13.0+cpu\nDjango==5\ndjango==5.2.19\npip==26\nsetuptools==80\n"
    )
    compiled += "nvidia-cublas==13\ntriton==3.9.0\n"
    assert pins(compiled) == ["torch==2.13.0", "django==5.2.19"]
