"""``python -m tests.experiments.run.train_on_two FOLDER DIRECTORY``: ten steps on two devices, with
checkpoints by the clock, after each of them.
"""

import sys
from pathlib import Path

from experiments.run import run
from tests.experiments.samples import tiny_experiment

if __name__ == "__main__":
    folder, directory = map(Path, sys.argv[1:])
    experiment = tiny_experiment(
        folder, max_steps=10, checkpoint_every_minutes=1e-9, average_checkpoints=1
    )
    result = run(experiment, directory, devices=2)
    print("None" if result is None else type(result).__name__)
