"""Files of the repository outside of docs/ as pages of the site: the course, the model cards, CONTRIBUTING.md.

They are copied below docs/ before Sphinx looks for pages, notebooks with folded solutions. Links in them and to them,
which are written for the repository, lead to the pages; a link to a file that is no page becomes its text.
"""

import json
import os
import posixpath
import re
import shutil
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

COPIES = ("course", "models", "project")  # folders of docs/ that hold nothing else; .gitignore names them
# A block or a piece of code, which may look like a link, or a link to a file: mark, text, path, anchor.
CODE_OR_LINK = re.compile(
    r"^```.+?^```$|`[^`\n]+`|(!?)\[([^\[\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL
)


def find_pages() -> dict[str, str]:
    """File of the repository -> page of the site, both with `/`."""
    pages = {
        "CONTRIBUTING.md": "project/contributing.md",
        "CHANGELOG.md": "project/changelog.md",
        "SECURITY.md": "project/security.md",
        "course/README.md": "course/index.md",
        "course/open_questions.md": "course/open_questions.md",
        "weights/README.md": "models/index.md",
        "tests/benchmarks/README.md": "project/benchmarks.md",
    }
    for card in sorted(ROOT.glob("weights/*/README.md")):
        pages[card.relative_to(ROOT).as_posix()] = f"models/{card.parent.name}.md"
    for notebook in sorted(ROOT.glob("course/*.ipynb")):
        pages[f"course/{notebook.name}"] = f"course/{notebook.name}"
    return pages


PAGES = find_pages()
SOURCES = {page: source for source, page in PAGES.items()}


def copy_files(app: Sphinx) -> None:
    for folder in COPIES:
        shutil.rmtree(DOCS / folder, ignore_errors=True)
    for source, page in PAGES.items():
        (DOCS / page).parent.mkdir(exist_ok=True)
        text = (ROOT / source).read_text("utf-8")
        (DOCS / page).write_text(change_notebook(text) if page.endswith(".ipynb") else text, "utf-8")
        shutil.copystat(ROOT / source, DOCS / page)  # Sphinx reads again what is newer than its last run
    for folder in ("course", "models"):  # their READMEs are the first pages
        names = sorted(path.stem for path in (DOCS / folder).iterdir() if path.stem != "index")
        with (DOCS / folder / "index.md").open("a", encoding="utf-8") as index:
            index.write("\n".join(["\n```{toctree}", ":hidden:", "", *names, "```\n"]))


def change_notebook(text: str) -> str:
    """A notebook whose solutions and answers of quizzes open by a click, without links to files that are no pages."""

    def replace(match: re.Match) -> str:
        _, label, path, _ = match.groups()
        is_page = path is None or posixpath.normpath(f"course/{path}") in PAGES
        return match[0] if is_page else label

    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = CODE_OR_LINK.sub(replace, "".join(cell["source"]))
        tags = cell["metadata"].get("tags", [])
        if "solution" in tags:
            cell["metadata"]["tags"] = [*tags, "hide-cell"]
    return json.dumps(notebook)


def relink(app: Sphinx, docname: str, content: list[str]) -> None:
    """Turns links to files of the repository into links to pages."""
    suffix = Path(app.env.doc2path(docname)).suffix
    if suffix != ".md":
        return
    page = PurePosixPath(docname + suffix)
    source = PurePosixPath(SOURCES.get(str(page), f"docs/{page}"))

    def replace(match: re.Match) -> str:
        mark, text, path, anchor = match.groups()
        if path is None:
            return match[0]
        path = posixpath.normpath(str(source.parent / path))
        if mark:  # a picture, wherever it is
            target = ROOT / path
        elif path == "README.md":
            target = DOCS / "index.md"
        elif path in PAGES:
            target = DOCS / PAGES[path]
        elif path.startswith("docs/"):
            target = ROOT / path
        elif (ROOT / path).exists():
            return text
        else:
            raise ValueError(f"{source}: expected a link to a file of the repository. Received: {match[0]}.")
        return f"{mark}[{text}]({Path(os.path.relpath(target, DOCS / page.parent)).as_posix()}{anchor or ''})"

    content[0] = CODE_OR_LINK.sub(replace, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", copy_files)
    app.connect("source-read", relink)
    return {"parallel_read_safe": True}
