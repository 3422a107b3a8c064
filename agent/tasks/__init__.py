"""Tasks from pids: owner, container, pod, job, launch, notebook; secrets redacted."""
