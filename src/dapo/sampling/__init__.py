"""Dynamic sampling: collect whole groups that disagree until the batch is full, within a bound."""
