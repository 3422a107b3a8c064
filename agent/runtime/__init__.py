"""What every part of the agent stands on: locks of the data folder and of actions, worker
threads."""
