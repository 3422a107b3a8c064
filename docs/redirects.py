"""Addresses that pages of the site had before. Each leads to where the page is now; mkdocs calls it
when the site is made (mkdocs.yml)."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

# Old and present name of a page, both without `.md`.
MOVED = {"acting": "rules-that-act", "acts": "actions", "architecture": "internals/architecture",
         "notices": "notifications", "orders": "commands", "timelines": "charts"}
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{to}">
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={to}">
<p>This page is <a href="{to}">there</a> now.</p>
</html>
"""


def on_post_build(config: MkDocsConfig) -> None:
    for old, new in MOVED.items():
        folder = Path(config.site_dir) / old
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text(PAGE.format(to=f"../{new}/"))
