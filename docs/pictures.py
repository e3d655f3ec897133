"""Makes the pictures of studies.md: runs studies at their small scale, and takes a figure of each report.

python docs/pictures.py path/to/mnist.npz path/to/folder_of_photographs [study ...]

The folder has train/ and test/, each with a folder a kind. What trains on photographs gets a few more of them and a few
more epochs than at the small scale, on a base that knows nothing, so that there is something to see.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CURVES, AXES, MAP, SCALING = "Learning curves", "Parameters and objective", "Two parameters", "Scaling"
FIGURES = {
    "line_fit": AXES,
    "ten_optimizers": CURVES,
    "lr_batch_cnn": MAP,
    "optimizer_hyperparameters": AXES,
    "losses_and_batches": AXES,
    "growing_batches": CURVES,
    "batch_and_gpus": SCALING,
    "fruit": CURVES,
    "caltech256": CURVES,
    "resnet_scaling": SCALING,
}
MORE = {
    "batch_and_gpus": ["ranks=1,2", "batch_size=128,512", "epochs=4", "dataset.subset=4000"],
    "fruit": ["epochs=6", "dataset.subset=400"],
    "caltech256": ["epochs=6", "dataset.subset=400"],
    "resnet_scaling": ["ranks=1,2", "epochs=3", "steps=null", "dataset.subset=40"],
}
"""What is typed beside `study.scale=small`."""
WIDTH = {"optimizer_hyperparameters": 2200}  # pixels


def main() -> None:
    mnist, photographs = (Path(given).absolute() for given in sys.argv[1:3])
    data = {"line_fit": [], "caltech256": [f"dataset.path={photographs}/train"]}
    data |= {study: [f"dataset.path={photographs}"] for study in ("fruit", "resnet_scaling")}
    wanted = sys.argv[3:] or FIGURES
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 700})
        for study, figure in ((name, FIGURES[name]) for name in wanted):
            line = ["-m", f"study={study}", "study.scale=small", f"hydra.sweeper.study_name={study}", "tracking=none"]
            line += [*data.get(study, [f"dataset.path={mnist}"]), *MORE.get(study, [])]
            subprocess.run([sys.executable, str(HERE.parent / "sweep.py"), *line], cwd=folder, check=True)
            page.set_viewport_size({"width": WIDTH.get(study, 900), "height": 700})
            page.goto(f"file://{folder}/multirun/{study}/report.html")
            drawn = page.locator(f"h2:text-is('{figure}') + div")
            drawn.locator(".main-svg").first.wait_for()
            drawn.screenshot(path=HERE / f"{study}.png")
        browser.close()


if __name__ == "__main__":
    main()
