"""The recorder against every supported release of transformers: `nox`, or `nox -s "recorder(5.1.0)"` for one.

Each session gets its own environment. The suite of the whole project is plain `pytest`.
"""

import nox

RELEASES = ("4.57.6", "5.1.0", "5.6.0", "newest")
TESTS = ("tests/test_record_architectures.py", "tests/test_record_breadth.py", "tests/test_record.py")


@nox.session
@nox.parametrize("transformers", RELEASES)
def recorder(session: nox.Session, transformers: str) -> None:
    """Record every architecture with one release of transformers."""
    wanted = "transformers" if transformers == "newest" else f"transformers=={transformers}"
    session.install("--constraint", "constraints.txt", "torch")
    session.install("-e", ".[test]", "accelerate", wanted)
    if transformers == "newest":
        session.install("bitsandbytes")  # for the models that are quantized already
    session.run("pytest", "-q", *TESTS, *session.posargs)
