"""The folders at the top become one package, ``qevict_diag``; everything else about the build is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = ("analyses", "cli", "figures")  # beside the library, installed inside it

inside = {f"qevict_diag.{folder}": folder for folder in FOLDERS}
found = [f"{package}.{part}" for package, folder in inside.items() for part in find_packages(folder)]

setup(
    packages=["qevict_diag", *(f"qevict_diag.{part}" for part in find_packages("qevict_diag")), *inside, *found],
    package_dir={"qevict_diag": "qevict_diag", **inside},
)
