"""What mkdocs needs to know beyond docs/: hooks for the build, and a check of what was built.

Pages link to files of the repository outside docs/. These become part of the site, so that mkdocs's own check
follows every link. `python -m docs.making.site` then looks for anything that a built page would load from the
network.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
OUTSIDE = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
PLACE = "repository"
"""Where in the site the repository's own files are."""

LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
)


def on_files(files: Any, config: Any) -> Any:
    """Add the repository's own files that docs/ links to: sheets, their pictures and data, examples."""
    from mkdocs.structure.files import File, InclusionLevel

    for name in sorted(linked_files()):
        path = ROOT / name
        if path.is_file():
            added = File.generated(config, f"{PLACE}/{name}", abs_src_path=str(path))
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/ point to where `on_files` has put their files."""
    if page.file.src_uri.startswith(f"{PLACE}/"):
        return markdown
    return OUTSIDE.sub(rf"{PLACE}/\1", markdown)


def linked_files() -> set[str]:
    """Files outside docs/ that its pages link to, and what these link to in turn; paths from the root."""
    found = {
        match for page in (ROOT / "docs").glob("*.md") for match in OUTSIDE.findall(page.read_text("utf-8"))
    }
    waiting = {name for name in found if name.endswith(".md")}
    while waiting:
        page = ROOT / waiting.pop()
        if not page.is_file():
            continue
        for target in re.findall(r"\]\(([^)#\s:]+)\)", page.read_text("utf-8")):
            inner = (page.parent / target).resolve()
            if not inner.is_relative_to(ROOT) or inner.is_relative_to(ROOT / "docs"):
                continue
            name = str(inner.relative_to(ROOT))
            if name not in found:
                found.add(name)
                waiting |= {name} if name.endswith(".md") else set()
    return found


def loads_from_network(site: Path = SITE) -> list[str]:
    """Everything in the built pages and styles that a browser would fetch from another host."""
    return [
        f"{path.relative_to(site)}: {match.group(0)[:80]}"
        for pattern in ("*.html", "*.css")
        for path in sorted(site.rglob(pattern))
        for match in LOADS.finditer(path.read_text("utf-8"))
    ]


def main() -> int:
    """Say what would be loaded; 1 if anything is."""
    if not (SITE / "index.html").exists():
        print("site/ is not built: run make docs", file=sys.stderr)
        return 1
    found = loads_from_network()
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
