"""Pictures of runs, made from the files in their folders and nothing else."""
