"""Puts into the site of mkdocs what its pages link to elsewhere in the repository.

A link to a Markdown file outside docs/ becomes a link to a page of the site. A link to any other file becomes
a link to a copy of the file. So the pages have the same links in the repository and in the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

root = Path(__file__).resolve().parent.parent
link = re.compile(r"(\]\()([^)\s:#]+)(#[^)]*)?(\))")


def place(path):
    """The place in the site of a path of the repository."""
    if path.startswith("docs/"):
        return path[len("docs/"):]
    name = "project/" + path
    return name if path.endswith(".md") else name + ".txt"


def origin(file):
    """The path in the repository of a file of the site, or in the file system of one of the theme."""
    return file.abs_src_path.removeprefix(f"{root}/")


def targets(path, text):
    """The paths in the repository that a page links to."""
    for match in link.finditer(text):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))


def on_files(files, config):
    known = {origin(file) for file in files}
    todo = list(known) + ["ARCHITECTURE.md", "BENCHMARKS.md", "CONTRIBUTING.md", "FIDELITY.md", "SECURITY.md"]
    seen = set()
    while todo:
        path = todo.pop()
        if path in seen or not (root / path).is_file():
            continue
        seen.add(path)
        if path not in known:
            file = File(place(path), config["docs_dir"], config["site_dir"], config["use_directory_urls"])
            file.abs_src_path = str(root / path)
            files.append(file)
        if path.endswith(".md"):
            todo += targets(path, (root / path).read_text())
    return files


def on_page_markdown(markdown, page, config, files):
    here = origin(page.file)

    def rewrite(match):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        target = posixpath.relpath(place(path), posixpath.dirname(page.file.src_uri) or ".")
        return match[1] + target + (match[3] or "") + match[4]

    return link.sub(rewrite, markdown)
