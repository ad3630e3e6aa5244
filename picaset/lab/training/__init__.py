"""One loop for every task: settings, run directories, checkpoints, exact resuming."""
