"""Puts into the site of mkdocs what its pages link to elsewhere in the repository.

A link to a Markdown file outside docs/ becomes a link to a page of the site. A link to any other file becomes
a link to a copy of the file. So the pages have the same links in the repository and in the site.

Browsers do not let pages that they opened from the disk fetch files or start workers from files. For such
pages the index of the search and its worker are also in a script.
"""

import json
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

root = Path(__file__).resolve().parent.parent
link = re.compile(r"(\]\()([^)\s:#]+)(#[^)]*)?(\))")
bundle = re.compile(r'<script src="([^"]*)assets/javascripts/bundle')


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


def on_post_page(output, page, config):
    """Loads the script of the search before the theme's own, if the page is opened from the disk."""
    match = bundle.search(output)
    script = f'<script src="{match[1]}search/disk.js"><\\/script>'
    load = f"<script>if (location.protocol === 'file:') document.write('{script}')</script>\n"
    return output[: match.start()] + load + output[match.start() :]


def on_post_build(config):
    site = Path(config["site_dir"])
    index = (site / "search/search_index.json").read_text()
    [worker] = site.glob("assets/javascripts/workers/search.*.js")
    blob = f'new Blob([{json.dumps(worker.read_text())}], {{type: "text/javascript"}})'
    (site / "search/disk.js").write_text(
        f"var __search = {{index: Promise.resolve({index}), worker: URL.createObjectURL({blob})}}\n"
    )
