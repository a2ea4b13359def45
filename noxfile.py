"""The bounds that pyproject.toml states: `nox`, or one session, `nox -s "recorder(5.1.0)"` or `nox -s lowest`.

Each session gets its own environment. The suite of the whole project is plain `pytest`.
"""

import nox

RELEASES = ("4.57.6", "5.1.0", "5.6.0", "newest")
RECORDING = tuple(f"tests/record/test_record{part}.py" for part in ("_architectures", "_breadth", ""))
FIGURES = ("tables", "page", "hostile_text", "figure1", "heatmap", "distribution", "figure_catalogue")
SMOKE = (
    *("tests/cli/test_smoke.py", "tests/cli/test_terminal.py", "tests/measure/test_measure.py"),
    *("tests/test_frame_files.py", *(f"tests/figures/test_{name}.py" for name in FIGURES)),
)


@nox.session
@nox.parametrize("transformers", RELEASES)
def recorder(session: nox.Session, transformers: str) -> None:
    """Record every architecture with one release of transformers."""
    wanted = "transformers" if transformers == "newest" else f"transformers=={transformers}"
    session.install("--constraint", "constraints.txt", "torch")
    session.install("-e", ".[test]", wanted)
    if transformers == "newest":
        session.install("bitsandbytes")  # for the models that are quantized already
    session.run("pytest", "-q", *RECORDING, *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run every command with the lowest release of each dependency; ``-- torch==2.13.0`` pins one elsewhere."""
    needs = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    pins = dict(need.split(">=") for need in needs) | dict(pin.split("==") for pin in session.posargs)
    session.install("-e", ".", "pytest", "hypothesis", *(f"{name}=={version}" for name, version in pins.items()))
    session.run("pytest", "-q", "-o", "filterwarnings=default", *SMOKE)


@nox.session(python=["3.12", "3.13"])
def python(session: nox.Session) -> None:
    """Run the whole suite on another Python."""
    session.install("-e", ".[test]")
    session.run("pytest", "-q", *session.posargs)
