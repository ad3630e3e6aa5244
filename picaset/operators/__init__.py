"""The mathematics: operators on sets. No files, no data sets, no training."""
