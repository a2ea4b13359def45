"""Heavy packages stay at home, and importing is light; which folder may import which is in .importlinter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"qevict_diag": "", "analyses": "analyses", "figures": "figures", "cli": "cli"}
HOMES = {  # third-party packages and the only places that may import them
    "transformers": ("models",),
    "gguf": ("models",),
    "matplotlib": ("figures",),
    "seaborn": ("figures",),
    "great_tables": ("figures",),
    "typer": ("cli",),
    "rich": ("cli",),
}
HEAVY = ("torch", "transformers", "matplotlib", "seaborn", "pandas", "polars", "scipy", "great_tables", "numpy")


def modules():
    """Every source file with its dotted name below the package, ``figures.tables`` say."""
    for folder, prefix in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join(part for part in (prefix, *inside) if part and part != "__init__"), path


MODULES = dict(modules())


def names_in(node):
    """Full names that one import statement imports; nothing for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import of {node.module}"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def at_run_time(path):
    """Imports outside ``if TYPE_CHECKING``: a type alone loads nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    typed = {id(inner) for guard in guarded for statement in guard.body for inner in ast.walk(statement)}
    return {name for node in ast.walk(tree) if id(node) not in typed for name in names_in(node)}


def test_all_modules_are_seen():
    assert {"statistics", "analyses.estimates", "figures.tables", "cli.app", "metrics.lir"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_stay_at_home(module):
    part = module.split(".")[0]
    packages = {name.split(".")[0] for name in at_run_time(MODULES[module])}
    assert not {package for package in packages & set(HOMES) if part not in HOMES[package]}


LIGHT = {  # modules, and what they must not bring along
    "qevict_diag": HEAVY,
    "qevict_diag.cli.app": HEAVY,
    "qevict_diag.figures.tables": ("matplotlib", "seaborn", "pandas", "great_tables"),
    "qevict_diag.figures.catalogue": ("seaborn", "pandas", "great_tables"),
}


@pytest.mark.parametrize("module", LIGHT)
def test_importing_is_light(module):
    told = f"import sys, {module}; print(*(name for name in {LIGHT[module]} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
