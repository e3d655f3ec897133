"""Makes the pictures of README and docs: runs studies at their small scale, and takes a figure of
each report, its first screen, or a page of MLflow.

python docs/pictures.py path/to/mnist.npz path/to/folder_of_photographs [picture ...]

The folder has train/ and test/, each with a folder a kind. What trains on photographs gets a few
more of them and a few more epochs than at the small scale, so that there is something to see; and
what fine-tunes sees four kinds on a base that learned the others before, as imagenet's weights are
a download.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.docs.tutorial import follow
from trainers.networks import base_of

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
CURVES, AXES, MAP, SCALING = (
    "Learning curves",
    "Parameters and objective",
    "Two parameters",
    "Scaling",
)
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
NETWORK = "model.name=EfficientNetV2B0"
"""It learns in some hundred steps; MobileNetV2 takes thousands, for the momentum of its batch
normalization."""
MORE = {
    "batch_and_gpus": ["ranks=1,2", "batch_size=128,512", "epochs=4", "dataset.subset=4000"],
    "fruit": [
        "epochs=8",
        "dataset.subset=400",
        "dataset.size=64",
        "model.fine_tune=false,20,true",
        NETWORK,
    ],
    "caltech256": ["epochs=8", "dataset.subset=400", "dataset.size=64", NETWORK],
}
"""What is typed beside `study.scale=small`."""
SEARCH = ["study=best_lr_batch", "hydra/sweeper=optuna", "hydra/sweeper/pruner=asha", "epochs=8"]
NEW = ("frog", "horse", "ship", "truck")
"""The kinds that are no part of what the base learns."""
BASE = [
    "dataset=image_folder",
    "dataset.size=64",
    "dataset.subset=12000",
    "epochs=6",
    "model=application",
    NETWORK,
]
STUDIES = {
    "first": [
        "hydra/sweeper=optuna",
        "hydra.sweeper.n_trials=20",
        "lr=tag(log, interval(1e-4, 1e-1))",
        "batch_size=32,64,128",
    ],
    "search": [*SEARCH, "hydra.sweeper.n_trials=40"],
    "grid": ["optimizer=adam,sgd", "lr=0.001,0.003,0.01,0.03", "batch_size=16,32,64"],
    "front": ["study=accuracy_and_time", "study.scale=small", "lr=0.0003,0.001,0.003"],
    "failed": [
        "trainer=own",
        "trainer._target_=typo.train",
        "lr=0.001,0.01",
        "batch_size=32,64,128",
    ],
}
"""What is typed; an experiment each, whose pages in MLflow then have these trials alone."""
PAGES = {
    "first_search": ("first", 785, ""),
    "page_search": ("search", 1180, ""),
    "page_trial": ("search", 900, "#trial-7"),
    "page_grid": ("grid", 1400, ""),
    "page_front": ("front", 1180, ""),
    "page_failed": ("failed", 700, ""),
}
"""Of which study, how many pixels of the page are seen, and what is opened in it."""
MLFLOW = {
    "mlflow_search": ("search", "view", 1200),
    "mlflow_grid": ("grid", "view", 1200),
    "mlflow_front": ("front", "view", 1200),
    "mlflow_failed": ("failed", "view", 700),
    "mlflow_study": ("search", ".", 1900),
    "mlflow_trial": ("search", "7", 1200),
}
"""Of which study; its view, or the page of the run that stands for this folder of it; and how many
pixels high."""
TUTORIALS = {
    "start_search": ("first_search", "sweepyard/multirun/first", 785),
    "start_own": ("own_script", "my_project/multirun/own_search", 785),
    "start_slurm": ("first_slurm_job", "sweepyard/multirun/jobs", 785),
}
"""Of which tutorial, which study, and how many pixels of its page are seen. The one of SLURM needs
a cluster: docker/slurm/cluster.sh run python docs/pictures.py ... start_slurm"""
TYPO = "def train(cfg, trial):\n    return {'val_accuracy': len(open('/data/mnist.npz').read())}\n"
WIDTH = {"optimizer_hyperparameters": 2200}  # pixels


def main() -> None:
    mnist, photographs = (Path(given).absolute() for given in sys.argv[1:3])
    data = {"line_fit": [], "resnet_scaling": [f"dataset.path={photographs}"]}
    wanted = sys.argv[3:] or [*FIGURES, *PAGES, *TUTORIALS, *MLFLOW]
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 700})
        if {"fruit", "caltech256"} & {*wanted}:
            weights = f"model.weights={learned(folder, photographs)}"
            data["fruit"] = [weights, f"dataset.path={folder}/new"]
            data["caltech256"] = [weights, f"dataset.path={folder}/new/train"]
        for study, figure in ((name, FIGURES[name]) for name in wanted if name in FIGURES):
            line = [f"study={study}", "study.scale=small", "tracking=none"]
            sweep(
                folder,
                study,
                [*line, *data.get(study, [f"dataset.path={mnist}"]), *MORE.get(study, [])],
            )
            page.set_viewport_size({"width": WIDTH.get(study, 900), "height": 700})
            page.goto(f"file://{folder}/multirun/{study}/report.html")
            drawn = page.locator(f"h2:text-is('{figure}') ~ div:not(.tools)").first
            drawn.scroll_into_view_if_needed()
            drawn.locator(".main-svg").first.wait_for()
            drawn.screenshot(path=PICTURES / f"{study}.png")
        (folder / "typo.py").write_text(TYPO)
        for study in dict.fromkeys(
            {**PAGES, **MLFLOW}[name][0] for name in wanted if name in {**PAGES, **MLFLOW}
        ):
            data_of = [f"dataset.path={mnist}"] * (study == "front")
            sweep(folder, study, [*STUDIES[study], *data_of, f"tracking.experiment={study}"])
        for name in wanted:
            if name in PAGES:
                study, height, opened = PAGES[name]
                page.set_viewport_size({"width": 1200, "height": height})
                page.goto(f"file://{folder}/multirun/{study}/report.html{opened}")
                page.reload()  # another trial alone is no other page
                page.wait_for_timeout(3000)  # its figures are drawn
                if name == "first_search":
                    hide_paths(page)
                take(page, name)
        take_tutorials(page, folder, wanted)
        for name in wanted:
            if name in MLFLOW:
                take_mlflow(page, folder, name)
        browser.close()


def learned(folder: Path, photographs: Path) -> Path:
    """Train a base on all kinds but `NEW`, whose photographs go to new/, and return the file with
    its weights."""
    for kind in photographs.glob("t*/*"):
        place = folder / ("new" if kind.name in NEW else "base") / kind.parent.name / kind.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(kind)
    sweep(
        folder,
        "base",
        [*BASE, f"dataset.path={folder}/base", "trainer.save_model=best", "tracking=none"],
    )
    model = keras.models.load_model(folder / "multirun/base/0/model/data/model.keras")
    base_of(model).save_weights(folder / "base.weights.h5")
    return folder / "base.weights.h5"


def sweep(folder: Path, study: str, words: list[str]) -> None:
    line = [
        sys.executable,
        str(ROOT / "sweep.py"),
        "-m",
        *words,
        f"hydra.sweeper.study_name={study}",
    ]
    subprocess.run(
        line, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=study != "failed"
    )


def take_mlflow(page: Page, folder: Path, name: str) -> None:
    """By the link that `ui` prints, or at the address of a run."""
    study, what, height = MLFLOW[name]
    page.set_viewport_size({"width": 1600, "height": height})
    line = [sys.executable, "-m", "sweeps", "ui", study, "--port", "0"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = (server.stdout.readline() if server.stdout else "").split()[0]
            page.goto(address)  # which keeps MLflow's assistant closed, also on other pages
            if what != "view":
                recorded = json.loads((folder / "multirun" / study / "tracking.json").read_text())
                run_id = json.loads(
                    (folder / "multirun" / study / what / "tracking.json").read_text()
                )["run_id"]
                experiment = f"/#/experiments/{recorded['experiment']}"
                run = f"{experiment}/runs/{run_id}?workflowType=machine_learning"
                page.goto(address.removesuffix(f"/{study}") + run)
            page.wait_for_timeout(15_000)  # MLflow's script is long
            for more in page.get_by_text("Show more", exact=True).all():
                more.click()
            take(page, name)
        finally:
            server.send_signal(signal.SIGINT)


def take_tutorials(page: Page, folder: Path, wanted: list[str]) -> None:
    """Run each tutorial, and take the page of a study that it leaves."""
    for name in wanted:
        if name not in TUTORIALS:
            continue
        tutorial, study, height = TUTORIALS[name]
        (folder / name).mkdir()
        follow(ROOT / "docs" / "start" / f"{tutorial}.md", folder / name)
        page.set_viewport_size({"width": 1200, "height": height})
        page.goto(f"file://{folder / name / study}/report.html")
        page.wait_for_timeout(3000)  # its figures are drawn
        hide_paths(page)
        take(page, name)


def hide_paths(page: Page) -> None:
    """Remove the card that has paths of this machine."""
    card = page.locator("section:has(h2:text-is('Reproduce'))")
    card.evaluate("card => card.remove()")


def take(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")
    Image.open(PICTURES / f"{name}.png").quantize(96).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
