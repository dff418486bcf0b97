"""Where the folders are that stand beside the package in a checkout, and inside it where a wheel was installed."""

from pathlib import Path


def carried(name: str) -> Path:
    """The folder `name` of the checkout, "weights" or "course", otherwise the copy that the wheel carries."""
    package = Path(__file__).resolve().parent
    checkout = package.parent
    # pyproject.toml tells a checkout from a site-packages folder that happens to hold a package of that name.
    if (checkout / name).is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / name
    return package / "_bundled" / name
