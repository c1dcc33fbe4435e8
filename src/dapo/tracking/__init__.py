"""What a run leaves behind and what a person sees of it: metrics, rollouts, the run folder, the display."""
