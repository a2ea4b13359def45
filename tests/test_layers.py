"""Data flows one way, so imports do: a lower layer never imports an upper one, and heavy packages stay at home."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"qevict_diag": "", "analyses": "analyses", "figures": "figures", "cli": "cli"}
UPPER = {"": ("analyses", "figures", "cli"), "analyses": ("figures", "cli"), "figures": ("cli",), "cli": ()}
WITHIN = {  # inside the library: what a folder must not know
    "trace": ("record", "replay", "measure", "metrics"),
    "statistics": ("record", "trace", "replay", "metrics", "measure"),
}
HOMES = {  # third-party packages and the only places that may import them
    "transformers": ("models", "record"),
    "gguf": ("models",),
    "matplotlib": ("figures",),
    "seaborn": ("figures",),
    "great_tables": ("figures",),
    "typer": ("cli",),
    "rich": ("cli",),
}
HEAVY = ("torch", "transformers", "matplotlib", "polars", "scipy", "great_tables", "numpy")


def modules():
    """Every source file with its dotted name below the package, ``figures.tables`` say."""
    for folder, prefix in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join(part for part in (prefix, *inside) if part and part != "__init__"), path


MODULES = dict(modules())


def imported(path):
    """Full names of everything a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        yield from names_in(node)


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


def own(path):
    """Imports of this package, without its name."""
    return [name.removeprefix("qevict_diag.") for name in imported(path) if name.split(".")[0] == "qevict_diag"]


def test_all_modules_are_seen():
    assert {"statistics", "analyses.estimates", "figures.tables", "cli.app", "metrics.lir"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_lower_layer_never_imports_an_upper_one(module):
    layer = module.split(".")[0] if module.split(".")[0] in UPPER else ""
    found = [name for name in own(MODULES[module]) if name.split(".")[0] in UPPER[layer]]
    assert not found


@pytest.mark.parametrize("module", [module for module in MODULES if module.split(".")[0] in WITHIN])
def test_the_library_flows_one_way(module):
    part = module.split(".")[0]
    found = [name for name in own(MODULES[module]) if name.split(".")[0] in WITHIN[part]]
    assert not found


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_stay_at_home(module):
    part = module.split(".")[0]
    packages = {name.split(".")[0] for name in at_run_time(MODULES[module])}
    assert not {package for package in packages & set(HOMES) if part not in HOMES[package]}


@pytest.mark.parametrize("module", ["qevict_diag", "qevict_diag.cli.app"])
def test_importing_is_light(module):
    told = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
