"""What is submitted: the request of a trial as options of sbatch, the script, and the preview of
both."""
