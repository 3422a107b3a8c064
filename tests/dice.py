"""Random numbers of numpy from the seed of the run, so that what fails can be seen again."""

import random

import numpy as np


def generator() -> np.random.Generator:
    return np.random.default_rng(random.getrandbits(64))
