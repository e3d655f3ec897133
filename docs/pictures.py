"""Makes the pictures of studies.md: runs studies at their small scale, and takes a figure of each report.

python docs/pictures.py path/to/mnist.npz
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CURVES, AXES, MAP = "Learning curves", "Parameters and objective", "Two parameters"
FIGURES = {
    "line_fit": AXES,
    "ten_optimizers": CURVES,
    "lr_batch_cnn": MAP,
    "losses_and_batches": AXES,
    "growing_batches": CURVES,
}


def main() -> None:
    mnist = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 700})
        for study, figure in FIGURES.items():
            line = ["-m", f"study={study}", "study.scale=small", f"hydra.sweeper.study_name={study}", "tracking=none"]
            line += [] if study == "line_fit" else [f"dataset.path={mnist}"]
            subprocess.run([sys.executable, str(HERE.parent / "sweep.py"), *line], cwd=folder, check=True)
            page.goto(f"file://{folder}/multirun/{study}/report.html")
            drawn = page.locator(f"h2:text-is('{figure}') + div")
            drawn.locator(".main-svg").first.wait_for()
            drawn.screenshot(path=HERE / f"{study}.png")
        browser.close()


if __name__ == "__main__":
    main()
