"""From a pid to a task: owner, container, pod, job, launch, notebook; secrets redacted."""
