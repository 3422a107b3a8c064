"""What every part of the hub stands on: state on disk, dispatcher of events, runner of loops."""
