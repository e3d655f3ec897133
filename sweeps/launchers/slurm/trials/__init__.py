"""Jobs that are more than one trial: arrays, workers, and the driver's own job."""
