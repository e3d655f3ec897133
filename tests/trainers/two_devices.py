"""Trains configurations on two logical CPU devices and prints their metrics, a JSON line each.

python -m tests.trainers.two_devices FOLDERS     (JSON: the overrides of each, by the folder for its checkpoint)
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

from tests.trainers.recorder import Recorder, compose
from trainers import distribution, trainer

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
# The only difference from two GPUs is the list of devices.
distribution.claim_gpus = lambda gpus: [f"CPU:{index}" for index in range(gpus)]
for folder, overrides in json.loads(sys.argv[1]).items():
    recorder = Recorder(Path(folder))
    result = trainer.train(compose("gpus=2", *overrides), recorder)
    print(json.dumps({"reported": recorder.reported, "result": result}))
