"""Public names that a package imports on first use, which keeps the import of the package fast."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_import_hooks(
    package: str, module_by_name: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        module_by_name: Public name -> the module that has it: one of the package, or any by its full name.
    """

    def getattr_(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = module_by_name[name]
        return getattr(import_module(home if "." in home else f"{package}.{home}"), name)

    return getattr_, lambda: sorted(module_by_name)
