"""Trains the configuration in argv on two logical CPU devices and prints its metrics as JSON."""

import json
import sys
from pathlib import Path

import tensorflow as tf

from tests.trainers.recorder import Recorder, compose
from trainers import distribution, trainer


def claim_two_cpus(gpus: int) -> list[str]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * gpus)
    return [f"CPU:{index}" for index in range(gpus)]


# The one thing that differs from two GPUs: which devices there are.
distribution.claim_gpus = claim_two_cpus
recorder = Recorder(Path(sys.argv[1]))
result = trainer.train(compose("gpus=2", *sys.argv[2:]), recorder)
print(json.dumps({"reported": recorder.reported, "result": result}))
