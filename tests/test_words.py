"""How functions and variables are named and described: read from the files, and held by the rules of CONTRIBUTING."""

from pathlib import Path

from tests.command_lines import ROOT

FILES = [ROOT / "sweep.py", ROOT / "conf.py", *(ROOT / "sweeps").rglob("*.py"), *(ROOT / "trainers").rglob("*.py")]
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
VERBS, VAGUE = (set(WORDS[kind].split()) for kind in ("verbs", "vague"))
