"""The Kubernetes page; assets/slurm/kubernetes.mjs fills it."""

from functools import partial

from .parts import Page
from .slurm import scheduler_frame

PAGE = Page(
    "kubernetes", "Kubernetes", "slurm/kubernetes.mjs",
    partial(scheduler_frame, "kubernetes", "Kubernetes"),
    "What Kubernetes has allocated next to what its pods use. Pods that hold GPUs without a "
    "process are listed first. Actions are Kubernetes' own, asked of its API server by the agent "
    "that reads it, as far as its node and its credential permit them.",
    addresses=r"^/kubernetes$", under="/tasks")
