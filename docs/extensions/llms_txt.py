"""llms.txt: every page of the site with its title and first sentence, for language models (llmstxt.org)."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    lines = [f"# {app.config.project}", "", f"> {summary(app, 'index')}", ""]
    for section in app.env.toctree_includes["index"]:
        lines += [f"## {title(app, section)}", "", entry(app, section), *descend(app, section), ""]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines), "utf-8")


def descend(app: Sphinx, docname: str) -> list[str]:
    pages = app.env.toctree_includes.get(docname, [])
    return [line for page in pages for line in (entry(app, page), *descend(app, page))]


def entry(app: Sphinx, docname: str) -> str:
    first = summary(app, docname)
    return f"- [{title(app, docname)}]({app.builder.get_target_uri(docname)})" + (f": {first}" if first else "")


def title(app: Sphinx, docname: str) -> str:
    return app.env.titles[docname].astext()


def summary(app: Sphinx, docname: str) -> str:
    """The first sentence of the page's first paragraph."""
    for section in app.env.get_doctree(docname).findall(nodes.section):
        for child in section.children:
            if isinstance(child, nodes.paragraph):
                sentence = " ".join(child.astext().split()).split(". ")[0]
                return sentence.rstrip(".:") + "."
        break
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
