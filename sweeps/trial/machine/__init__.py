"""The machine below a trial: its GPUs, its memory, samples of their use, and facts on them."""
