"""Makes the pictures of studies.md: runs each study at its small scale, and takes a figure of its report.

python docs/pictures.py path/to/mnist.npz path/to/cifar10_images.tar.xz
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CURVES, AXES, MAP = "Learning curves", "Parameters and objective", "Two parameters"
FIGURES = {
    "line_fit": AXES,
    "ten_optimizers": CURVES,
    "lr_batch_cnn": MAP,
    "optimizer_hyperparameters": AXES,
    "losses_and_batches": AXES,
    "growing_batches": CURVES,
    "batch_and_gpus": CURVES,
    "fruit": CURVES,
    "caltech256": AXES,
    "resnet_scaling": AXES,
}


def main() -> None:
    mnist, archive = (Path(word).absolute() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        with tarfile.open(archive) as files:
            some = [file for file in files if file.isfile() and Path(file.name).stem.startswith(("000", "001"))]
            files.extractall(folder, some, filter="data")
        images = {"fruit": "cifar10", "caltech256": "cifar10/train", "resnet_scaling": "cifar10"}
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 700})
        for study, figure in FIGURES.items():
            data = (
                [] if study == "line_fit" else [f"dataset.path={folder / images[study] if study in images else mnist}"]
            )
            command = [
                sys.executable,
                str(HERE.parent / "sweep.py"),
                "-m",
                f"study={study}",
                "study.scale=small",
                *data,
            ]
            subprocess.run([*command, f"hydra.sweeper.study_name={study}", "tracking=none"], cwd=folder, check=True)
            page.goto(f"file://{folder}/multirun/{study}/report.html")
            drawn = page.locator(f"h2:text-is('{figure}') + div")
            drawn.locator(".main-svg").first.wait_for()
            drawn.screenshot(path=HERE / f"{study}.png")
        browser.close()


if __name__ == "__main__":
    main()
