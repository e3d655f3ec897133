"""What runs inside a job of SLURM: one trial, or a worker that runs trials one after the other."""
