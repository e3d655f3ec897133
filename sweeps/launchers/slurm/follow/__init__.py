"""How jobs are followed from outside: squeue, sacct, and the files that jobs leave."""
