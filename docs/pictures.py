"""Makes the pictures of studies.md and page.md: runs studies at their small scale, and takes a figure of each report,
or its first screen.

python docs/pictures.py path/to/mnist.npz path/to/folder_of_photographs [study or page ...]

The folder has train/ and test/, each with a folder a kind. What trains on photographs gets a few more of them and a few
more epochs than at the small scale, on a base that knows nothing, so that there is something to see.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

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
SEARCH = ["study=best_lr_batch", "hydra/sweeper=optuna", "hydra/sweeper/pruner=asha", "epochs=8"]
SEARCH += ["hydra.sweeper.n_trials=40"]
PAGES = {
    "page_search": (SEARCH, 1180, ""),
    "page_trial": (SEARCH, 900, "#trial-7"),
    "page_failed": (["trainer=own", "trainer._target_=typo.train", "lr=0.001,0.01", "batch_size=32,64,128"], 700, ""),
}
"""What is typed, how many pixels of the page are seen, and what is opened in it."""
TYPO = "def train(cfg, trial):\n    return {'val_accuracy': len(open('/data/mnist.npz').read())}\n"
WIDTH = {"optimizer_hyperparameters": 2200}  # pixels


def main() -> None:
    mnist, photographs = (Path(given).absolute() for given in sys.argv[1:3])
    data = {"line_fit": [], "caltech256": [f"dataset.path={photographs}/train"]}
    data |= {study: [f"dataset.path={photographs}"] for study in ("fruit", "resnet_scaling")}
    wanted = sys.argv[3:] or [*FIGURES, *PAGES]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 700})
        for wanted_page in [wanted_page for wanted_page in wanted if wanted_page in PAGES]:
            take_page(page, folder, wanted_page)
        for study, figure in ((name, FIGURES[name]) for name in wanted if name in FIGURES):
            line = ["-m", f"study={study}", "study.scale=small", f"hydra.sweeper.study_name={study}", "tracking=none"]
            line += [*data.get(study, [f"dataset.path={mnist}"]), *MORE.get(study, [])]
            subprocess.run([sys.executable, str(HERE.parent / "sweep.py"), *line], cwd=folder, check=True)
            page.set_viewport_size({"width": WIDTH.get(study, 900), "height": 700})
            page.goto(f"file://{folder}/multirun/{study}/report.html")
            drawn = page.locator(f"h2:text-is('{figure}') + div")
            drawn.scroll_into_view_if_needed()
            drawn.locator(".main-svg").first.wait_for()
            drawn.screenshot(path=HERE / f"{study}.png")
        browser.close()


def take_page(page: Page, folder: Path, name: str) -> None:
    """The first screen of a page, which may be that of a study that was run for the one before."""
    words, height, opened = PAGES[name]
    (folder / "typo.py").write_text(TYPO)
    line = ["-m", *words, "tracking=none", f"hydra.sweeper.study_name={'search' if words is SEARCH else name}"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, str(HERE.parent / "sweep.py"), *line], cwd=folder, env=environment, check=False)
    page.set_viewport_size({"width": 1200, "height": height})
    page.goto(f"file://{folder}/multirun/{line[-1].partition('=')[2]}/report.html{opened}")
    page.reload()  # another trial alone is no other page
    page.wait_for_timeout(3000)  # its figures are drawn
    page.screenshot(path=HERE / f"{name}.png")
    Image.open(HERE / f"{name}.png").quantize(96).save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
