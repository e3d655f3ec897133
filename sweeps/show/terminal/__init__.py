"""What the terminal shows of a study, while it runs and afterwards."""
