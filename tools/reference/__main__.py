"""Print every page: python -m tools.reference"""

from tools.reference import PAGES
from tools.reference.page import ROOT

for name, make in PAGES.items():
    path = ROOT / "docs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make())
