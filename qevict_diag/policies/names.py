"""The names of policies: ``NAME`` or ``NAME[estimator]``."""


def base_of(name: str) -> str:
    """The condition behind ``NAME[estimator]``."""
    return name.partition("[")[0]
