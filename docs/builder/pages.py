"""Pages of the site that are not files in docs/: notebooks, the changelog, and files that pages link to.

Hooks of MkDocs, which mkdocs.yml names. Documents link to files of the repository by their path, which works in a
clone and on GitHub; here the same files become part of the site, at the same path.
"""

import os
import re
import sys
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import notebook_pages

ROOT = Path(__file__).parent.parent.parent
TABLE_ROW = re.compile(r"^\|.*", re.MULTILINE)
DIGIT_GAP = re.compile(r"(?<=\d) (?=\d{3}\b)")
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
NOTEBOOK = re.compile(r"^(docs/notebooks/\w+)\.py$")
PAGES_FROM_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add executed notebooks, documents from the root of the repository, and the files that documents link to."""
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        files.append(File.generated(config, PAGES_FROM_THE_ROOT[name], content=(ROOT / name).read_text()))
    for path, content in notebook_pages().items():
        files.append(File.generated(config, path, content=content))
    for page in list(files.documentation_pages()):
        for _, target in LINK.findall(page.content_string):
            path = repository_path(page.src_uri, target)
            is_elsewhere = not path.startswith("docs/") and path not in PAGES_FROM_THE_ROOT
            if is_elsewhere and (ROOT / path).is_file() and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository point to their place on the site."""
    markdown = markdown.replace(" ± ", "\u00a0±\u00a0")  # a number and its spread stay on one line
    markdown = TABLE_ROW.sub(lambda row: DIGIT_GAP.sub("\u00a0", row[0]), markdown)  # and so do the digits of a number
    return LINK.sub(lambda match: match[1] + site_link(page.file.src_uri, match[2]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let every figure open by itself, where a narrow screen can enlarge it."""
    return re.sub(r'<img [^>]*src="([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)


def site_link(source: str, target: str) -> str:
    """Return a link of a page as a path relative to the page on the site."""
    path = repository_path(source, target)
    place = PAGES_FROM_THE_ROOT.get(path, NOTEBOOK.sub(r"\1.md", path).removeprefix("docs/"))
    return PurePosixPath(os.path.relpath(place, PurePosixPath(source).parent)).as_posix()


def repository_path(source: str, target: str) -> str:
    """Return the path in the repository that a page links to."""
    of_the_root = {place: name for name, place in PAGES_FROM_THE_ROOT.items() if place != "index.md"}
    file = of_the_root.get(source) or (source if (ROOT / source).is_file() else f"docs/{source}")
    return PurePosixPath(os.path.normpath(PurePosixPath(file).parent / target)).as_posix()
