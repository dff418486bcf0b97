"""`bertzoo course`: a copy of the notebooks to work in."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

import bertzoo


def course(directory: Annotated[Path, typer.Argument(help="Where to copy to; made if need be.")]) -> None:
    """Copy the course into a directory. It is notebooks with exercises; no file there is overwritten."""
    root = course_root()
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    files = [name for name in files if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)]
    if not files:
        raise ValueError(f"this installation has no course: {root} holds no files.")
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: name a directory.")
    there = [str(name) for name in files if (directory / name).exists()]
    if there:
        more = " …" if len(there) > 3 else ""
        raise ValueError(f"{directory} has {', '.join(there[:3])}{more} already: name another directory.")
    for name in files:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, directory / name)
    print(f"{len(files)} files in {directory}. Begin: jupyter lab {directory}")


def course_root() -> Path:
    """`course/` of a checkout, otherwise the copy that the wheel carries."""
    package = Path(bertzoo.__file__).resolve().parent
    checkout = package.parent
    # pyproject.toml tells a checkout from a site-packages folder that happens to hold a package named course.
    if (checkout / "course").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / "course"
    return package / "_bundled" / "course"
