"""A hook of mkdocs: pages beside `docs/`, such as RELEASES.md, are in the site, and links lead to them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BESIDE = "project"  # the folder of the site that has them
_PATTERNS = (
    "*.md",
    "dockerfiles/*.md",
    "patches-policy/*.md",
    "external-builds/*/*.md",
    "external-builds/*/hip/*.md",
)
_TITLE = re.compile(r'(<a class="reference internal(?: current)?") >')
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside `docs/`."""
    for pattern in _PATTERNS:
        for path in sorted(ROOT.glob(pattern)):
            uri = f"{BESIDE}/{path.relative_to(ROOT).as_posix()}"
            files.append(File.generated(config, uri, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Have each link lead to its page in the site; what is no page of it, such as code, is named alone."""
    uri = page.file.src_uri
    source = ROOT / uri.removeprefix(f"{BESIDE}/") if uri.startswith(f"{BESIDE}/") else DOCS / uri

    def replaced(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target:
            return link[0]
        path = Path(os.path.normpath(source.parent / target))
        inside = path.is_relative_to(DOCS)
        to = path.relative_to(DOCS) if inside else Path(BESIDE, path.relative_to(ROOT))
        if files.get_file_from_path(to.as_posix()) is None:
            return text if path.exists() else link[0]  # mkdocs reports a link to nothing
        return f"[{text}]({os.path.relpath(to, Path(uri).parent)}{anchor})"

    return _LINK.sub(replaced, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Have an example that is wider than the screen take the focus, so that keys scroll it."""
    return html.replace("<pre>", '<pre tabindex="0">')


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Make the title of a section, which the theme opens on a click, a link that keys reach."""
    return _TITLE.sub(r'\1 href="#">', output)
