"""Run axe-core on the site's kinds of page, on every report and on further pages, wide and narrow, light and dark; fail on any violation.

Usage: accessibility.py AXE.js SITE [PAGE...]
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

axe = Path(sys.argv[1]).read_text("utf-8")
site = Path(sys.argv[2]).resolve()
NAMED = ("index.html", "tutorials/judge-my-samples.html", "concepts/floors.html", "reference/cli.html", "reference/api.html", "reference/tasks/banana.html", "reference/algorithms/sifg.html", "glossary.html")  # fmt: skip
pages = (
    [site / name for name in NAMED]
    + sorted(site.glob("reports/*/index.html"))
    + [Path(p).resolve() for p in sys.argv[3:]]
)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}

found = 0
with sync_playwright() as play:
    browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        for path in pages:
            page = context.new_page()
            page.goto(path.as_uri())
            page.evaluate(axe)
            violations = page.evaluate("rules => axe.run(document, rules).then(found => found.violations)", RULES)
            for v in violations:
                found += 1
                places = "; ".join(" ".join(map(str, node["target"])) for node in v["nodes"][:3])
                print(
                    f"{path.name} in {path.parent.name}, {width} px, {scheme}: {v['id']} ({len(v['nodes'])}): {v['help']}: {places}"
                )
            page.close()
            print(f"{width} px, {scheme}: {path.parent.name}/{path.name}", file=sys.stderr, flush=True)
        context.close()
    browser.close()
print(f"accessibility: {len(pages)} pages, {found} violations")
sys.exit(bool(found))
