"""Folders that can be called as the function that they are named after, so that ``qd.measure(...)`` works.

A folder and a function of the package's face have one name, and Python keeps one attribute for both: the folder,
once anything in it is imported.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CalledFolder(ModuleType):
    """A folder that is called as its function, which is imported when that happens."""

    function: tuple[str, str]  # its module, its name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        module, name = self.function
        return getattr(import_module(module), name)(*args, **kwargs)


def called(folder: str, module: str) -> None:
    """Let the package ``folder`` be called as the function of its name in its ``module``."""
    itself: Any = sys.modules[folder]
    itself.__class__ = CalledFolder
    itself.function = (f"{folder}.{module}", folder.rpartition(".")[2])
